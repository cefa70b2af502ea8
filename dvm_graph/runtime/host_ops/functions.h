// The functions of the table in host_operator.cpp, and what makes of words and arguments what some
// of them know besides.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace dvm {

class HostFrame;

void compress(HostFrame& frame);
void concat_from_sequence(HostFrame& frame);
void constant_extents(HostFrame& frame);
void coupled_probabilities(HostFrame& frame);
void cumulative_product(HostFrame& frame);
void cumulative_sum(HostFrame& frame);
void expand_extents(HostFrame& frame);
void key_places(HostFrame& frame);
void max_unpool(HostFrame& frame);
void non_max_suppression(HostFrame& frame);
void non_zero(HostFrame& frame);
void number_texts(HostFrame& frame);
void one_hot_extents(HostFrame& frame);
void optional(HostFrame& frame);
void optional_get_element(HostFrame& frame);
void optional_has_element(HostFrame& frame);
void pad_extents(HostFrame& frame);
void range_extents(HostFrame& frame);
void regex_full_match(HostFrame& frame);
void reshape_extents(HostFrame& frame);
void resize_extents(HostFrame& frame);
void scatter_elements(HostFrame& frame);
void scatter_nd(HostFrame& frame);
void sequence_at(HostFrame& frame);
void sequence_construct(HostFrame& frame);
void sequence_empty(HostFrame& frame);
void sequence_erase(HostFrame& frame);
void sequence_insert(HostFrame& frame);
void sequence_length(HostFrame& frame);
void slice_extents(HostFrame& frame);
void split_extents(HostFrame& frame);
void split_to_sequence(HostFrame& frame);
void string_concat(HostFrame& frame);
void string_normalizer(HostFrame& frame);
void string_split(HostFrame& frame);
void text_numbers(HostFrame& frame);
void text_ranks(HostFrame& frame);
void texts_at(HostFrame& frame);
void texts_equal(HostFrame& frame);
void tf_idf_vectorizer(HostFrame& frame);
void tile_extents(HostFrame& frame);
void tokenizer(HostFrame& frame);
void top_k(HostFrame& frame);
void tree_sums(HostFrame& frame);
void unique(HostFrame& frame);

Tensor know_grams(std::vector<std::string> words, std::span<const int64_t> arguments);
Tensor know_normalizer(std::vector<std::string> words, std::span<const int64_t> arguments);
Tensor know_pattern(std::vector<std::string> words, std::span<const int64_t> arguments);
Tensor know_texts(std::vector<std::string> words, std::span<const int64_t> arguments);
Tensor know_tokenizer(std::vector<std::string> words, std::span<const int64_t> arguments);

}  // namespace dvm
