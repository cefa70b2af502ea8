"""`python -m demo`: the tiny BERT over many shapes, compared with onnxruntime."""
