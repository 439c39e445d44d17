"""Import path of upstream scripts; the code lives in `chakra.schemas`."""
