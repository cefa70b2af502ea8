"""Which file decomposes which ONNX operators, by domain.

A file is loaded when a model has one of its operators: few models have many, and all of them take as long to load as a
small model to compile. Each file enters its functions into the table of decompositions (`registry`), which holds it
to what stands here.
"""

from collections.abc import Mapping

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""
CLASSICAL = "ai.onnx.ml"
"""That of classical machine learning, which is ONNX's, too."""

FAMILIES: Mapping[str, Mapping[str, str]] = {
    "activations": {
        "": (
            "Relu LeakyRelu PRelu Elu Selu Celu Gelu HardSigmoid HardSwish Swish Mish Softplus "
            "Softsign ThresholdedRelu Shrink"
        ),
        MICROSOFT: "QuickGelu",
    },
    "attention": {"": "Attention RotaryEmbedding"},
    "block_quantized": {MICROSOFT: "MatMulNBits MatMulBnb4 GatherBlockQuantized"},
    "cache_writes": {"": "TensorScatter"},
    "casts": {
        "": "Cast CastLike QuantizeLinear DynamicQuantizeLinear DequantizeLinear",
        MICROSOFT: "QuantizeLinear DequantizeLinear",
    },
    "classical": {
        CLASSICAL: (
            "Scaler ArrayFeatureExtractor Imputer Normalizer LinearRegressor LinearClassifier "
            "Binarizer FeatureVectorizer"
        ),
    },
    "contrib_attention": {MICROSOFT: "Attention MultiHeadAttention RotaryEmbedding"},
    "contrib_fused": {
        "": "SimplifiedLayerNormalization",
        MICROSOFT: (
            "Gelu BiasGelu FastGelu FusedMatMul TransposeMatMul FusedGemm FusedConv CDist "
            "SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization"
        ),
    },
    "contrib_group_query": {MICROSOFT: "GroupQueryAttention"},
    "contrib_quantized": {
        MICROSOFT: (
            "QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearSoftmax "
            "QLinearAveragePool NhwcMaxPool QLinearGlobalAveragePool QLinearConcat QLinearWhere "
            "QEmbedLayerNormalization"
        ),
    },
    "deformable_convolution": {"": "DeformConv"},
    "dequantized_products": {"": "MatMul Gemm Conv"},
    "einsum": {"": "Einsum"},
    "elementwise": {
        "": (
            "Abs Neg Sign Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh "
            "Atanh Erf Tanh Sigmoid Floor Ceil Round Not BitwiseNot IsNaN Add Sub Mul Div And Or "
            "Xor BitwiseAnd BitwiseOr BitwiseXor Equal Less LessOrEqual Greater GreaterOrEqual Max "
            "Min Sum Mean Identity Where Mod BitShift Pow IsInf Clip SwiGLU"
        ),
    },
    "encoders": {CLASSICAL: "CategoryMapper LabelEncoder OneHotEncoder ZipMap"},
    "grid_sampling": {
        "": "GridSample AffineGrid",
        MICROSOFT: "GridSample",
    },
    "host": {
        "": (
            "NonZero Compress Unique TopK MaxUnpool Scatter ScatterElements ScatterND "
            "NonMaxSuppression"
        ),
    },
    "indexing": {
        "": "Gather GatherElements GatherND ReverseSequence OneHot Trilu",
        MICROSOFT: "GatherND Trilu",
    },
    "normalization": {
        "": (
            "LayerNormalization RMSNormalization GroupNormalization InstanceNormalization "
            "BatchNormalization LpNormalization LRN MeanVarianceNormalization"
        ),
    },
    "overlapping_blocks": {"": "Col2Im"},
    "pooling": {"": "MaxPool AveragePool LpPool GlobalLpPool"},
    "quantized_products": {
        "": "QLinearMatMul QLinearConv MatMulInteger ConvInteger",
        MICROSOFT: (
            "QLinearMatMul QLinearConv QGemm MatMulIntegerToFloat DynamicQuantizeMatMul QAttention"
        ),
    },
    "quantized_recurrent": {MICROSOFT: "DynamicQuantizeLSTM"},
    "recurrent": {"": "LSTM GRU RNN"},
    "reductions": {
        "": (
            "ReduceSum ReduceProd ReduceMax ReduceMin ReduceMean ReduceSumSquare ReduceL1 ReduceL2 "
            "ReduceLogSum ReduceLogSumExp GlobalAveragePool GlobalMaxPool ArgMax ArgMin Hardmax "
            "CumSum CumProd"
        ),
    },
    "region_pooling": {"": "RoiAlign"},
    "resizing": {"": "Resize Upsample"},
    "sequences": {
        "": (
            "SequenceConstruct SequenceEmpty SequenceAt SequenceInsert SequenceErase SequenceLength "
            "SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement"
        ),
    },
    "shapes": {
        "": (
            "Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile DepthToSpace SpaceToDepth "
            "Shape Size"
        ),
        MICROSOFT: "ExpandDims",
    },
    "slicing": {
        "": "Slice Split Concat Pad CenterCropPad",
        MICROSOFT: "Pad",
    },
    "softmax": {"": "Softmax LogSoftmax SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss"},
    "sources": {
        "": "Range ConstantOfShape EyeLike Dropout",
        MICROSOFT: "Range",
    },
    "spectral": {"": "DFT STFT"},
    "support_vectors": {CLASSICAL: "SVMClassifier SVMRegressor"},
    "transposed_convolution": {"": "ConvTranspose"},
    "texts": {
        "": "StringNormalizer TfIdfVectorizer StringConcat StringSplit RegexFullMatch",
        MICROSOFT: "Tokenizer",
    },
    "trees": {CLASSICAL: "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"},
}
