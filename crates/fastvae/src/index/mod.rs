//! The inverted multi-index: codebooks over the item vectors, and the items of each cell (section 4).
