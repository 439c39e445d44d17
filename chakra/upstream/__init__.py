"""The commands, classes and module paths of mlcommons/chakra, answered by this project's own.

What they do is what `chakra ...` does; only names and options are upstream's. Modules at its paths (`chakra.src.*`,
`chakra.et_converter.*` and the like) hold imports from here and nothing else.
"""
