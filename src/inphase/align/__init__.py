"""Mathematics: tensors in, tensors out."""
