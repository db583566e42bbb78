"""The rules of the house, as tests: layers, purity, sizes, names, pages, links, running documentation."""
