// exp, erf, tanh and sigmoid of f32 lanes with coefficients that are looked up in registers: two of
// them hold 32 (AVX-512). So short polynomials do, without a branch that is computed for nothing.
//
// A strip of vectors is computed operation by operation, not vector by vector: the chain of one
// vector is so long that a core would not get to the next ones while it waits.
// Coefficients: fit_polynomials.py. Compiled per level: see simd.h.
#pragma once

#include "npu/host/lanes.h"

namespace dvm::DVM_LEVEL {
namespace {

constexpr int kPieces = 32;

// 2^(i/32).
alignas(kVectorBytes) constexpr float kExpPieces[kPieces] = {
    1.0f,          1.0218971487f, 1.0442737824f, 1.0671404007f, 1.0905077327f, 1.1143867426f,
    1.1387886348f, 1.1637248588f, 1.189207115f,  1.21524736f,   1.2418578121f, 1.2690509572f,
    1.2968395547f, 1.3252366432f, 1.3542555469f, 1.383909882f,  1.4142135624f, 1.445180807f,
    1.4768261459f, 1.5091644276f, 1.5422108254f, 1.5759808451f, 1.6104903319f, 1.6457554782f,
    1.6817928305f, 1.7186192981f, 1.7562521604f, 1.794709075f,  1.8340080864f, 1.8741676341f,
    1.9152065614f, 1.9571441242f};
// e^r = 1 + r (a + b r) for |r| <= ln(2)/64.
constexpr float kExpSlope = 1.0000146623f, kExpBend = 0.50000407286f;  // 5.3e-8

// Of f(x)/x around the multiples of a step, a column each, lowest power first.
alignas(kVectorBytes) constexpr float kErfPieces[][kPieces] = {
    // 2.9e-9
    {1.1283791671f,  1.1225296383f,  1.1053055606f,  1.0776450917f,  1.0409997556f,  0.99718541147f,
     0.94820751153f, 0.89608578409f, 0.84270079299f, 0.78967842822f, 0.73832010266f, 0.6895782348f,
     0.64407009769f, 0.60211922048f, 0.56381238357f, 0.5290613641f,  0.49766113251f, 0.4693392803f,
     0.44379434818f, 0.42072297338f, 0.39983721919f, 0.38087414257f, 0.36359977384f, 0.34780944179f,
     0.33332596983f, 0.31999683304f, 0.30769098376f, 0.29629575843f, 0.2857140734f,  0.27586198755f,
     0.26666663634f, 0.25806451613f},
    {7.0092788948e-9f, -0.093154857331f, -0.18116555409f,  -0.25944586451f,  -0.32443411488f,
     -0.37389717866f,  -0.40703507621f,  -0.42438929366f,  -0.42759323596f,  -0.41902619281f,
     -0.40143922512f,  -0.37761349527f,  -0.35009328703f,  -0.32101359565f,  -0.29202143594f,
     -0.26427500989f,  -0.23849711583f,  -0.21505812683f,  -0.19406758508f,  -0.17545958498f,
     -0.15906357604f,  -0.14465762419f,  -0.13200490446f,  -0.12087624404f,  -0.11106223473f,
     -0.1023782599f,   -0.094665164186f, -0.087787554617f, -0.081631047256f, -0.076099245309f,
     -0.071110866289f, -0.066597202561f},
    {-0.37612721288f, -0.36564534868f, -0.33535095618f,  -0.28849637649f, -0.22991375402f,
     -0.16526366662f, -0.10021745086f, -0.039728693187f, 0.012485634989f, 0.054193613579f,
     0.084630063921f, 0.10426804333f,  0.11446509201f,   0.11707446981f,  0.11409433862f,
     0.1074008194f,   0.098581571013f, 0.088863014866f,  0.079109957135f, 0.06987125839f,
     0.061447160018f, 0.053959801797f, 0.047415513656f,  0.0417536876f,   0.03688149491f,
     0.032696286284f, 0.02909855481f,  0.025998376094f,  0.02331775721f,  0.020990679474f,
     0.01896201631f,  0.017186035062f},
    {3.2338100564e-5f,  0.055282875124f,   0.1045464919f,     0.1427607422f,     0.16665593562f,
     0.17511905147f,    0.16915698424f,    0.15147745841f,    0.12582237024f,    0.096227082754f,
     0.066366532394f,   0.039103159046f,   0.016274646093f,   -0.0012917974891f, -0.01360499588f,
     -0.021252918401f,  -0.025136021122f,  -0.026242039235f,  -0.025487659494f,  -0.023630085893f,
     -0.021236718438f,  -0.018694641883f,  -0.01624170441f,   -0.014004643609f,  -0.01203510086f,
     -0.010338791024f,  -0.0088966592024f, -0.0076787833866f, -0.0066526415222f, -0.0057874662101f,
     -0.0050561391916f, -0.0044356872491f},
    {0.11239907181f,   0.10645852642f,    0.088899298761f,   0.06283477268f,   0.032328929995f,
     0.0018050523051f, -0.024804804777f,  -0.044711520978f,  -0.056594446353f, -0.060579114771f,
     -0.057908803899f, -0.050515978222f,  -0.040498449426f,  -0.029743379988f, -0.019679234486f,
     -0.011189509824f, -0.0046532291491f, -6.1870222846e-5f, 0.0028374961165f, 0.0044107747499f,
     0.0050380967568f, 0.0050533396367f,  0.0047171875055f,  0.0042139443841f, 0.0036618845668f,
     0.0031289985852f, 0.0026487028869f,  0.0022328566753f,  0.0018812542198f, 0.0015878691121f,
     0.0013445772803f, 0.0011431463229f},
};
constexpr float kErfStep = 0.125f, kErfLimit = 3.875f;
alignas(kVectorBytes) constexpr float kTanhPieces[][kPieces] = {
    // 1.5e-8
    {1.0000000001f,   0.92423431647f,  0.76159415648f,  0.60343216892f,  0.48201379f,
     0.39464571926f,  0.3316849179f,   0.28519368503f,  0.24983232493f,  0.22216738019f,
     0.19998184085f,  0.18181210857f,  0.16666461861f,  0.15384545836f,  0.14285690528f,
     0.13333325176f,  0.12499997187f,  0.11764704908f,  0.11111111111f,  0.10526315672f,
     0.099999999588f, 0.095238095094f, 0.090909090858f, 0.086956521721f, 0.083333333327f,
     0.079999999998f, 0.076923076922f, 0.074074074074f, 0.071428571428f, 0.068965517241f,
     0.066666666667f, 0.064516129032f},
    {-5.5742511726e-8f, -0.27557277486f,   -0.34162004029f,   -0.2818170342f,    -0.20568146692f,
     -0.14722139126f,   -0.10727295894f,   -0.080443657067f,  -0.062122843608f,  -0.049260858454f,
     -0.039960051563f,  -0.03304460075f,   -0.027773340357f,  -0.023667141097f,  -0.020407654171f,
     -0.017777603756f,  -0.015624940217f,  -0.013840809823f,  -0.012345671868f,  -0.011080329927f,
     -0.0099999991346f, -0.0090702944821f, -0.008264462704f,  -0.0075614366358f, -0.0069444444314f,
     -0.0063999999954f, -0.0059171597617f, -0.0054869684494f, -0.0051020408161f, -0.0047562425683f,
     -0.0044444444444f, -0.0041623309053f},
    {-0.33332989478f,   -0.17571655438f,   0.021769703691f,   0.078833891997f,   0.068786079384f,
     0.048394049228f,   0.032485236824f,   0.021945544444f,   0.015195697983f,   0.010837213934f,
     0.0079556969524f,  0.0059959633435f,  0.0046247940172f,  0.0036397076706f,  0.0029149040095f,
     0.0023701840197f,  0.0019530612596f,  0.0016283110853f,  0.0013717345498f,  0.0011663481596f,
     0.000999999089f,   0.00086383728087f, 0.00075131468984f, 0.00065751619351f, 0.00057870369003f,
     0.00051199999519f, 0.00045516613394f, 0.0004064421068f,  0.00036443148667f, 0.00032801672878f,
     0.00029629629627f, 0.00026853747775f},
    {-7.8842263982e-5f,  0.16297848993f,     0.081863674423f,    0.0059900496114f,
     -0.013340541973f,   -0.012549956499f,   -0.0086685722822f,  -0.0055804623049f,
     -0.0035758764711f,  -0.0023352029481f,  -0.0015669299772f,  -0.0010820755226f,
     -0.00076806670226f, -0.00055902676984f, -0.00041609753134f, -0.00031591544128f,
     -0.00024409494579f, -0.00019155289775f, -0.00015241035834f, -0.00012277186634f,
     -9.9999325095e-5f,  -8.2270001514e-5f,  -6.8301251863e-5f,  -5.7175286198e-5f,
     -4.8225291159e-5f,  -4.0959990914e-5f,  -3.5012774293e-5f,  -3.0106819255e-5f,
     -2.6030818027e-5f,  -2.2621841567e-5f,  -1.9753085067e-5f,  -1.7324997532e-5f},
    {0.1341769246f,    0.0033625604096f,  -0.054121755042f,  -0.020640834569f,  -0.0022765483939f,
     0.001800800427f,  0.0018310324978f,  0.0012520955015f,  0.00078275359672f, 0.00048244245809f,
     0.0003012888833f, 0.00019269343854f, 0.00012664595543f, 8.5540506603e-5f,  5.9284129977e-5f,
     4.206767984e-5f,  3.0493113568e-5f,  2.2529141428e-5f,  1.6932228117e-5f,  1.2922568049e-5f,
     9.9996577103e-6f, 7.8351419618e-6f,  6.2091709071e-6f,  4.9717521215e-6f,  4.0187700698e-6f,
     3.2767977925e-6f, 2.6932898067e-6f,  2.2301345743e-6f,  1.8593440792e-6f,  1.5601269814e-6f,
     1.3168723296e-6f, 1.1177417734e-6f},
    {-0.00441018448f,    -0.059442081231f,  0.0068805624469f,   0.011927704929f,
     0.0035933922857f,   0.00044626930501f, -0.00019865127959f, -0.00022213866803f,
     -0.00015162482357f, -9.2873069095e-5f, -5.5579365578e-5f,  -3.3509894287e-5f,
     -2.0615185454e-5f,  -1.3005305075e-5f, -8.4236150291e-6f,  -5.597821343e-6f,
     -3.8105359767e-6f,  -2.6518656853e-6f, -1.8829856356e-6f,  -1.3616014065e-6f,
     -1.0009490752e-6f,  -7.4690592141e-7f, -5.6496705895e-7f,  -4.326792868e-7f,
     -3.3515036818e-7f,  -2.6232685164e-7f, -2.0731009543e-7f,  -1.6529427763e-7f,
     -1.3288441892e-7f,  -1.0765095628e-7f, -8.7834182433e-8f,  -7.2145215738e-8f},
    {-0.04427037745f,    0.019635894498f,   0.011223678633f,  -0.0031269658315f, -0.0018470956443f,
     -0.00046425613272f, -5.8622509095e-5f, 1.9465703437e-5f, 2.317843821e-5f,   1.5753537824e-5f,
     9.4900759224e-6f,   5.5479604021e-6f,  3.2520321827e-6f, 1.9383751067e-6f,  1.182041523e-6f,
     7.3905145715e-7f,   4.7379065918e-7f,  3.1110939066e-7f, 2.0891662789e-7f,  1.4322048136e-7f,
     1.0005784632e-7f,   7.1120898029e-8f,  5.135606724e-8f,  3.7622669496e-8f,  2.7928622927e-8f,
     2.0985942041e-8f,   1.5946855222e-8f,  1.2243992273e-8f, 9.4917329669e-9f,  7.4241990013e-9f,
     5.8556097668e-9f,   4.6545286995e-9f},
};
constexpr float kTanhStep = 0.5f, kTanhLimit = 9.0f;
// The functions are 1 from their limits on, and exactly that: a limit is the centre of its piece,
// where the polynomial is its first coefficient, which is the limit's reciprocal.
static_assert(kErfPieces[0][static_cast<int>(kErfLimit / kErfStep)] * kErfLimit == 1.0f);
static_assert(kTanhPieces[0][static_cast<int>(kTanhLimit / kTanhStep)] * kTanhLimit == 1.0f);

// A row of pieces in two registers.
struct Pieces {
  F low, high;

  DVM_INLINE explicit Pieces(const float (&pieces)[kPieces])
      : low(load<F>(pieces)), high(load<F>(pieces + kF)) {
    asm("" : "+v"(low), "+v"(high));  // or the compiler would load them for every vector
  }
  // By the last bits of `place`.
  DVM_INLINE F at(F place) const {
    return bits_as<F>(_mm512_permutex2var_ps(bits_as<__m512>(low), bits_as<__m512i>(place),
                                             bits_as<__m512>(high)));
  }
};

// Adding it rounds to a multiple of the step, whose number the last bits then are.
constexpr float rounding(float step) { return 12582912.0f * step; }

// So many vectors of a strip at a time that what is known of each fits the registers beside it.
template <int kPart, int K, class Body>
DVM_INLINE void by_parts(F (&x)[K], Body body) {
  if constexpr (K <= kPart) {
    body(x);
  } else {
    static_assert(K % kPart == 0);
    each<K / kPart>([&](auto number) DVM_LAMBDA_INLINE {
      constexpr int first = kPart * decltype(number)::k;
      F part[kPart];
      each<kPart>([&](auto at) DVM_LAMBDA_INLINE { part[at.k] = x[first + at.k]; });
      body(part);
      each<kPart>([&](auto at) DVM_LAMBDA_INLINE { x[first + at.k] = part[at.k]; });
    });
  }
}

// e^x = 2^n 2^(i/32) e^r with |r| <= ln(2)/64. Where x is infinite or so large that r is anything,
// so is n, which alone decides then; where x is NaN, so is n.
template <int K>
DVM_INLINE void exp_strip(F (&x)[K]) {
  constexpr float kRound = rounding(1.0f / kPieces), kMost = 0.011f;
  F place[K], n[K], power[K];
  each<K>([&](auto at) DVM_LAMBDA_INLINE {
    place[at.k] = multiply_add(x[at.k], splat<F>(1.44269504088896341f), splat<F>(kRound));
  });
  each<K>([&](auto at) DVM_LAMBDA_INLINE { n[at.k] = place[at.k] - kRound; });
  each<K>([&](auto at) DVM_LAMBDA_INLINE {
    x[at.k] = multiply_add(n[at.k], splat<F>(-0.693359375f), x[at.k]);
  });
  each<K>([&](auto at) DVM_LAMBDA_INLINE {
    x[at.k] = multiply_add(n[at.k], splat<F>(2.12194440e-4f), x[at.k]);
  });
  each<K>([&](auto at) DVM_LAMBDA_INLINE {  // the lesser magnitude with the sign of r, a number
    x[at.k] = bits_as<F>(_mm512_range_ps(bits_as<__m512>(x[at.k]), _mm512_set1_ps(kMost), 0b0010));
  });
  const Pieces powers(kExpPieces);
  each<K>([&](auto at) DVM_LAMBDA_INLINE { power[at.k] = powers.at(place[at.k]); });
  each<K>([&](auto at) DVM_LAMBDA_INLINE {
    const F sum = multiply_add(x[at.k], splat<F>(kExpBend), splat<F>(kExpSlope));
    power[at.k] = multiply_add(power[at.k] * x[at.k], sum, power[at.k]);
  });
  each<K>([&](auto at) DVM_LAMBDA_INLINE {
    x[at.k] = bits_as<F>(_mm512_scalef_ps(bits_as<__m512>(power[at.k]), bits_as<__m512>(n[at.k])));
  });
}

// |x| p(|x| - c) with the polynomial of the piece around c.
template <int K, int Powers>
DVM_INLINE void odd_strip(F (&x)[K], const float (&pieces)[Powers][kPieces], float step,
                          float limit) {
  const float round = rounding(step);
  F magnitude[K], place[K], d[K], sum[K];
  each<K>([&](auto at) DVM_LAMBDA_INLINE { magnitude[at.k] = at_most(absolute(x[at.k]), limit); });
  each<K>([&](auto at) DVM_LAMBDA_INLINE { place[at.k] = magnitude[at.k] + round; });
  each<K>([&](auto at) DVM_LAMBDA_INLINE { d[at.k] = magnitude[at.k] - (place[at.k] - round); });
  const Pieces highest(pieces[Powers - 1]);
  each<K>([&](auto at) DVM_LAMBDA_INLINE { sum[at.k] = highest.at(place[at.k]); });
  each<Powers - 1>([&](auto done) DVM_LAMBDA_INLINE {
    const Pieces next(pieces[Powers - 2 - done.k]);
    each<K>([&](auto at) DVM_LAMBDA_INLINE {
      sum[at.k] = multiply_add(sum[at.k], d[at.k], next.at(place[at.k]));
    });
  });
  each<K>([&](auto at)
              DVM_LAMBDA_INLINE { x[at.k] = with_sign_of(sum[at.k] * magnitude[at.k], x[at.k]); });
}

template <int K>
DVM_INLINE void erf_strip(F (&x)[K]) {
  by_parts<2>(
      x, [](auto& part) DVM_LAMBDA_INLINE { odd_strip(part, kErfPieces, kErfStep, kErfLimit); });
}

template <int K>
DVM_INLINE void tanh_strip(F (&x)[K]) {
  by_parts<2>(
      x, [](auto& part) DVM_LAMBDA_INLINE { odd_strip(part, kTanhPieces, kTanhStep, kTanhLimit); });
}

template <int K>
DVM_INLINE void sigmoid_part(F (&x)[K]) {
  const F one = splat<F>(1.0f);
  F e[K];
  each<K>([&](auto at) DVM_LAMBDA_INLINE { e[at.k] = -absolute(x[at.k]); });
  exp_strip(e);
  each<K>([&](auto at) DVM_LAMBDA_INLINE {  // e is NaN where x is
    x[at.k] = (x[at.k] < F{} ? e[at.k] : one) / (e[at.k] + 1.0f);
  });
}
template <int K>
DVM_INLINE void sigmoid_strip(F (&x)[K]) {
  by_parts<4>(x, [](auto& part) DVM_LAMBDA_INLINE { sigmoid_part(part); });
}

}  // namespace
}  // namespace dvm::DVM_LEVEL
