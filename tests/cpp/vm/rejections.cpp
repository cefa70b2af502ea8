#include "rejections.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "../targets.h"
#include "check.h"
#include "reference_device.h"
#include "vm/assemble.h"
#include "vm/order.h"
#include "vm/row_blocks.h"
#include "vm/steps.h"
#include "vm/verify.h"

namespace dvm::testing {
namespace {

Target target_of(bool unified) {
  Target target = plain_target();
  target.local_bytes = 64 << 10;
  target.matmul_nr = reference::kColumnsPerPanel;
  target.unified_memory = unified;
  if (!unified) run_pipes(target, 8);
  return target;
}

void check_assembly_errors() {
  const struct {
    const char* text;
    int line;
    const char* message;
  } cases[] = {
      {"", 0, "ends before"},
      {"program square\n", 1, "vector, cube or mix"},
      {"program vector\n  tiles 1\n", 2, "per_core"},
      {"program vector\nbody\n  v_add_i8 [1,1,1] l:0x0(0,0,1) <- #1, #2\nend\n", 3, "v_add_i8"},
      {"program vector\nbody\n  v_add_f32 [1,1,1] l:0x0(0,0) <- #1, #2\nend\n", 3, "expected ','"},
      {"program vector\nbody\n  v_neg_f32 [1,1,1] l:0x0(0,0,1) <- #1 {often}\nend\n", 3,
       "predicate"},
      {"program vector\nbody\n  s_set_flag vector -> moon event 1\nend\n", 3, "moon"},
  };
  for (const auto& c : cases) {
    try {
      assemble(c.text);
      CHECK(false, "accepted: %s", c.text);
    } catch (const AssemblyError& error) {
      CHECK(error.line() == c.line, "line %d instead of %d", error.line(), c.line);
      CHECK(std::string(error.what()).find(c.message) != std::string::npos, "%s", error.what());
    }
  }
}

// `message` is part of the complaint; empty: there is none.
void check_rejected(const char* what, std::string text, const char* from, const char* to,
                    const char* message, bool unified = false) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos, "%s: no '%s' in\n%s", what, from, text.c_str());
  if (at == std::string::npos) return;
  text.replace(at, std::strlen(from), to);
  const ValueInfo values[] = {{DType::f32, 400}, {DType::f32, 400}};
  const std::string error = verify(assemble(text), values, 2, 0, target_of(unified));
  const bool expected = *message == 0 ? error.empty() : error.find(message) != std::string::npos;
  CHECK(expected, "%s: '%s'", what, error.c_str());
}

void check_verifier() {
  const std::string good =
      "program vector\n"
      "  grid d0: 4 tiles of 30 in 100\n"
      "  tiles 4 per_core 4 group 1 claim 1 chunks 1 local 0x80\n"
      "  e1 = 1 * d0\n"
      "  p0 = v0 + 0 in [0, 400) d0: 120\n"
      "  p1 = v1 + 0 in [0, 400) d0: 120\n"
      "body\n"
      "  s_wait_flag mte3 -> mte2 event 7 across 1\n"
      "  d_load_f32 [1,1,e1] l:0x0(0,0,1) <- p0(0,0,1)\n"
      "  s_set_flag mte2 -> vector event 0\n"
      "  s_wait_flag mte2 -> vector event 0\n"
      "  v_add_f32 [1,1,e1] l:0x0(0,0,1) <- l:0x0(0,0,1), #1\n"
      "  s_set_flag vector -> mte3 event 0\n"
      "  s_wait_flag vector -> mte3 event 0\n"
      "  d_store_f32 [1,1,e1] p1(0,0,1) <- l:0x0(0,0,1)\n"
      "  s_set_flag mte3 -> mte2 event 7 across 1\n"
      "end\n";
  check_rejected("the program itself", good, "tiles 4", "tiles 4", "");
  check_rejected("buffer", good, "[0, 400)", "[0, 404)", "a buffer of 400 bytes");
  check_rejected("pointer step", good, "d0: 120", "d0: 124", "operand 1 reaches");
  check_rejected("pointer base", good, "v0 + 0", "v0 + 4", "operand 1 reaches");
  check_rejected("local memory", good, "local 0x80", "local 0x70", "operand 0 reaches");
  check_rejected("target memory", good, "local 0x80", "local 0x8000000", "bytes of local memory");
  check_rejected("extent", good, "1 * d0", "2 * d0", "reaches");
  check_rejected("stride", good, "p1(0,0,1)", "p1(0,0,2)", "has stride 1");
  const std::string joined =
      "program vector\n"
      "  grid d0: 4 tiles of 5 in 20\n"
      "  tiles 4 per_core 4 group 1 claim 1 chunks 1 local 0x80 ahead 1 p0\n"
      "  e1 = 1 * d0\n"
      "  e2 = 3\n"
      "  p0 = v0 + 0 in [0, 240) d0: 60\n"
      "  p1 = v1 + 0 in [0, 240) d0: 60\n"
      "body\n"
      "  v_sub_f32 [1,e1,e2] l:0x0(0,3,1) <- p0(0,3,1), #1 {joined}\n"
      "  v_exp_f32 [1,e1,e2] p1(0,3,1) <- l:0x0(0,3,1) {joined}\n"
      "  v_reduce_sum_f32 [e1,e2,1] l:0x40(1,0,1) <- p1(3,1,1)\n"
      "end\n";
  const auto rejected = [&](const char* what, const char* from, const char* to,
                            const char* message) {
    check_rejected(what, joined, from, to, message, true);
  };
  rejected("the group itself", "joined", "joined", "");
  rejected("transient alone", "{joined}", "{transient}", "joined to nothing");
  rejected("other loops", "v_exp_f32 [1,e1,e2]", "v_exp_f32 [1,1,e2]", "over other loops");
  rejected("reduced loops", "v_reduce_sum_f32 [e1,e2,1]", "v_reduce_sum_f32 [e2,e1,1]", "loops");
  rejected("an instruction of no group", "v_exp", "v_ceil", "cannot be joined");
  rejected("another predicate", "l:0x0(0,3,1) {joined}", "l:0x0(0,3,1) {changed d0, joined}",
           "another predicate");
  rejected("nothing follows", "p1(3,1,1)\n", "p1(3,1,1) {joined}\n", "a reduction ends");
  rejected("fetched ahead", "ahead 1 p0", "ahead 1 p2", "fetches ahead");
  rejected("by rows under a predicate", "#1 {joined}", "#1 {changed d0, joined, rows}",
           "by rows, but under a predicate");
  rejected("by rows over other loops", "#1 {joined}\n  v_exp_f32 [1,e1,e2]",
           "#1 {rows}\n  v_exp_f32 [1,1,e2]", "by rows, but over other loops");
  rejected("by rows, adding up", "p1(3,1,1)\n", "p1(3,1,1) {accumulate, rows}\n",
           "by rows, but accumulates");
  const std::string folds =
      "program vector\n"
      "  grid d0: 4 tiles of 5 in 20\n"
      "  tiles 4 per_core 4 group 1 claim 1 chunks 1 local 0x80\n"
      "  e1 = 1 * d0\n"
      "  e2 = 3\n"
      "  p0 = v0 + 0 in [0, 240) d0: 60\n"
      "body\n"
      "  v_reduce_sum_f32 [e1,e2,1] l:0x0(1,0,1) <- p0(3,1,1) {joined}\n"
      "  v_reduce_max_f32 [e1,e2,1] l:0x40(1,0,1) <- p0(3,1,1)\n"
      "end\n";
  const auto rejected_fold = [&](const char* what, const char* from, const char* to,
                                 const char* message) {
    check_rejected(what, folds, from, to, message, true);
  };
  rejected_fold("two folds", "joined", "joined", "");
  rejected_fold("folds of other rows", "p0(3,1,1)\n", "p0(0,1,1)\n", "of other rows");
  rejected_fold("folds over other loops", "max_f32 [e1,e2,1]", "max_f32 [1,e2,1]", "of other rows");
  rejected_fold("folds of one kind", "v_reduce_max", "v_reduce_sum", "of other rows");
  rejected_fold("a fold and a map", "v_reduce_max_f32 [e1,e2,1] l:0x40(1,0,1) <- p0(3,1,1)",
                "v_exp_f32 [1,e1,e2] l:0x40(0,3,1) <- p0(0,3,1)", "of other rows");
  rejected_fold("a third fold", "p0(3,1,1)\n", "p0(3,1,1) {joined}\n", "a reduction ends");
  rejected_fold("a fold of strided rows", "l:0x0(1,0,1) <- p0(3,1,1)", "l:0x0(1,0,1) <- p0(3,0,1)",
                "others cannot join");
  rejected_fold("folds by rows", "{joined}", "{joined, rows}", "others cannot join");
  std::string groups;
  for (int i = 0; i < kMostRowGroups; i++) {
    groups += "  v_sub_f32 [1,e1,e2] p1(0,3,1) <- p0(0,3,1), #1 {rows}\n";
  }
  rejected("many groups by rows", "body\n", ("body\n" + groups).c_str(), "");
  groups += groups;
  rejected("too many groups by rows", "body\n", ("body\n" + groups).c_str(), "too many groups");
  rejected("fetched too far ahead", "d0: 60\n  p1", "d0: 9007199254740992\n  p1", "steps too far");
  rejected("by rows with nothing", "p1(3,1,1)\n", "p1(3,1,1) {rows}\n", "by rows with none");
  check_rejected("value", good, "= v1", "= v2", "names no value");
  check_rejected("register", good, "p0(0,0,1)", "p7(0,0,1)", "undefined pointer");
  check_rejected("grid", good, "4 tiles of", "5 tiles of", "wrong number of tiles");
  check_rejected("tiles", good, "tiles 4 per", "tiles 3 per", "does not match the grid");
  check_rejected("direct access", good, "<- l:0x0(0,0,1), #1", "<- p0(0,0,1), #1",
                 "only memory instructions");
  check_rejected("unpaired set", good, "  s_wait_flag mte2 -> vector event 0\n", "",
                 "set more often");
  check_rejected("unpaired wait", good, "  s_set_flag mte2 -> vector event 0\n", "",
                 "nobody has set");
  const std::string set = "  s_set_flag mte2 -> vector event 0\n";
  const std::string wait = "  s_wait_flag mte2 -> vector event 0\n";
  const std::string load = "  d_load_f32 [1,1,e1] l:0x0(0,0,1) <- p0(0,0,1)\n";
  check_rejected("no flag", good, (set + wait).c_str(), "", "no flag orders");
  check_rejected("set too early", good, (load + set).c_str(), (set + load).c_str(),
                 "no flag orders");
  const std::string next = "mte3 -> mte2 event 7 across 1\n";
  std::string alone = good;
  alone.erase(alone.find("  s_wait_flag " + next), ("  s_wait_flag " + next).size());
  check_rejected("nothing from tile to tile", alone, ("  s_set_flag " + next).c_str(), "",
                 "no flag orders");
  // Of the last 4 bytes alone, beside what the tile before left.
  const std::string apart = "  d_load_f32 [1,1,1] l:0x74(0,0,1) <- p0(0,0,1)\n";
  check_rejected("a part that overlaps", good, ("  s_set_flag vector -> mte3 event 0\n"),
                 (apart + "  s_set_flag vector -> mte3 event 0\n").c_str(), "no flag orders");
  std::string pairs = set + wait;
  for (size_t i = 0; i < kMostOrdered / 2; ++i) pairs += set + wait;
  check_rejected("too long to follow", good, (set + wait).c_str(), pairs.c_str(),
                 "too many instructions");
  check_rejected("event", good, "event 0", "event 9", "no such event");
  check_rejected("flags", good, ", #1", ", #1 {accumulate}", "no reduction");
  check_rejected("misaligned base", good, "v0 + 0", "v0 + 2", "misaligned");
  check_rejected("misaligned step", good, "d0: 120", "d0: 118", "misaligned");
  const std::string huge =
      "program vector\n"
      "  grid d0: 1 tiles of 8589934593 in 8589934593\n"
      "  tiles 1 per_core 1 group 1 claim 1 chunks 0 local 0x0\n"
      "  e1 = 2147483647 * d0\n"
      "body\n"
      "end\n";
  check_rejected("an extent of 64 bits", huge, "e1", "e1", "extent register e1 is out of range");
  const std::string panels =
      "program cube\n"
      "  tiles 1 per_core 1 group 1 claim 1 chunks 0 local 0x88\n"
      "  e1 = 2\n"
      "  e2 = 3\n"
      "  e3 = 13\n"
      "  p0 = v0 + 0 in [0, 96)\n"
      "body\n"
      "  m_matmul_widen_bf16 [e1,e2,e3] l:0x20(0,13,1) <- l:0x0(0,3,1), p0(24,8,1)\n"
      "end\n";
  check_rejected("whole panels", panels, "[0, 96)", "[0, 96)", "", true);
  check_rejected("a ragged panel", panels, "[0, 96)", "[0, 90)", "operand 2 reaches", true);
  const std::string blocks =
      "program cube\n"
      "  tiles 1 per_core 1 group 1 claim 1 chunks 0 local 0x200\n"
      "  e1 = 2\n"
      "  e2 = 12\n"
      "  e3 = 13\n"
      "  p0 = v0 + 0 in [0, 256)\n"
      "body\n"
      "  m_matmul_blocks_f32 [e1,e2,e3] l:0x180(0,13,1) <- l:0x0(0,12,1), p0(32,16,1) block 8 of 4 "
      "bits\n"
      "end\n";
  check_rejected("whole blocks", blocks, "[0, 256)", "[0, 256)", "", true);
  check_rejected("a block that ends behind its panels", blocks, "[0, 256)", "[0, 252)",
                 "operand 2 reaches", true);
  check_rejected("a block of no words", blocks, "block 8 ", "block 12 ", "no block", true);
  check_rejected("a block of other levels", blocks, "of 4 bits", "of 3 bits", "no levels", true);
  check_rejected("a block of other rows", blocks, "(32,16,1)", "(32,40,1)", "other rows", true);
  const std::string sum =
      "program cube\n"
      "  tiles 1 per_core 1 group 1 claim 1 chunks 0 local 0x100\n"
      "  e1 = 2\n"
      "  e2 = 3\n"
      "  e3 = 13\n"
      "  p0 = v0 + 0 in [0, 104)\n"
      "  p1 = v1 + 0 in [0, 104)\n"
      "body\n"
      "  m_matmul_clamp_f32 [e1,e2,e3] p1(0,13,1) <- l:0x0(0,3,1), l:0x20(24,8,1), p0(0,13,1) "
      "clamp (#0, #inf)\n"
      "end\n";
  check_rejected("a sum", sum, "[0, 104)", "[0, 104)", "", true);
  check_rejected("an addend beyond its value", sum, "p0(0,13,1)", "p0(0,14,1)", "operand 3 reaches",
                 true);
  check_rejected("an addend by columns", sum, "p0(0,13,1)", "p0(0,1,2)",
                 "rows of a matmul are contiguous", true);
  check_rejected("a number added", sum, ", p0(0,13,1)", ", #1", "not 0", true);
  check_rejected("nothing added", sum, ", p0(0,13,1)", ", #0", "", true);
  check_rejected("a sum that accumulates", sum, "#inf)\n", "#inf) {accumulate_always}\n",
                 "accumulate", true);
  check_rejected("bounds without numbers between them", sum, "#inf)", "#-1)", "low", true);
  check_rejected("a gate", sum, "#inf)\n", "#inf) gate (#0.5, #-1)\n", "", true);
  check_rejected("a gate without end", sum, "#inf)\n", "#inf) gate (#inf, #0)\n", "line", true);
  const std::string windows =
      "program vector\n"
      "  tiles 1 per_core 1 group 1 claim 1 chunks 0 local 0x0\n"
      "  e1 = 2\n"
      "  e2 = 3\n"
      "  p0 = v0 + 0 in [0, 24)\n"
      "  p1 = v1 + 0 in [0, 24)\n"
      "  p2 = integer + 0 in [0, 0)\n"
      "  p3 = v1 + 24 in [24, 60)\n"
      "  p4 = v1 + 60 in [60, 72)\n"
      "body\n"
      "  d_depthwise_f32 [1,e1,e2] p0(0,3,1) <- p1(0,0,1), p2(0,1,0), p3(0,0,1), p4(0,0,1) "
      "window (1, 1, 1, 2, 3, 1, 3, 1, 1, 2, 1, 1, 3, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0) "
      "clamp (#0, #6)\n"
      "end\n";
  const auto refused = [&](const char* what, const char* from, const char* to,
                           const char* message) {
    check_rejected(what, windows, from, to, message, true);
  };
  refused("sums of windows", "clamp", "clamp", "");
  refused("no row for sums of windows", "p4(0,0,1)", "#0", "");
  refused("a number for sums of windows", "p4(0,0,1)", "#1", "not 0");
  refused("a row beyond its value", "[60, 72)", "[60, 68)", "operand 4 reaches");
  refused("a row of elements apart", "p4(0,0,1)", "p4(0,0,2)",
          "a row that is added or scales is contiguous");
  refused("sums of windows without numbers between bounds", "#6", "#-1", "low");
  refused("sums of windows up to what is no number", "#6", "#nan", "low");
  const std::string levels =
      "program cube\n"
      "  tiles 1 per_core 1 group 1 claim 1 chunks 0 local 0x100\n"
      "  e1 = 2\n"
      "  e2 = 3\n"
      "  e3 = 13\n"
      "  p0 = v0 + 0 in [0, 52)\n"
      "  p1 = v1 + 0 in [0, 26)\n"
      "body\n"
      "  m_matmul_quantize_u8 [e1,e2,e3] p1(0,13,1) <- l:0x0(0,3,1), l:0x20(24,8,1), p0(0,0,1), "
      "#0.5 levels (0, 255, 3)\n"
      "end\n";
  check_rejected("levels", levels, "[0, 26)", "[0, 26)", "", true);
  check_rejected("too few addends", levels, "[0, 52)", "[0, 48)", "operand 3 reaches", true);
  check_rejected("addends apart", levels, "p0(0,0,1)", "p0(0,0,2)",
                 "a row that is added or scales is contiguous", true);
  check_rejected("no level", levels, "(0, 255", "(256, 255", "low is not up to high", true);
  check_rejected("what is no float", levels, "255, 3)", "255, 5000000)", "too far from 0", true);
  check_rejected("a bound that is no number", sum, "#inf)", "#nan)", "low", true);
  Program program = assemble(good);
  std::memcpy(program.mutable_words() + program.words().size() - program.body().size(), "\xff\xff",
              2);
  const ValueInfo values[] = {{DType::f32, 400}, {DType::f32, 400}};
  CHECK(verify(program, values, 2, 0, target_of(false)).find("no such opcode") != std::string::npos,
        "a wrong opcode");
}

void check_steps() {
  Steps steps(2, "walk");
  std::string said;
  try {
    for (;;) steps.take();
  } catch (const std::logic_error& error) {
    said = error.what();
  }
  CHECK(said == "the compiler's walk never ends", "it says: %s", said.c_str());
}

}  // namespace

void check_rejections() {
  check_assembly_errors();
  check_verifier();
  check_steps();
}

}  // namespace dvm::testing
