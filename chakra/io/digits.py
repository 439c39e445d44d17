"""Texts that are whole numbers. `str.isdigit` takes characters such as a superscript two, which `int` refuses."""


def is_whole(text: str, most: int | None = None) -> bool:
    """Whether a text is one or more of the digits 0 to 9 and nothing else.

    Parameters
    ----------
    text
        The text.
    most
        Digits at most; any number by default, of which `int` takes 4,300.

    Examples
    --------
    >>> is_whole("042"), is_whole("²"), is_whole(""), is_whole("1" * 20, 19)
    (True, False, False, False)
    """
    return text.isascii() and text.isdigit() and (most is None or len(text) <= most)
