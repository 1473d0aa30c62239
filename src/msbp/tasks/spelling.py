"""What the spelling of a word tells a tagger that its lower-cased form does not."""

import re


def capitals(word: str) -> str:
    """Which letters are capitals: none | first (the first alone) | all (of several) | some."""
    if word == word.lower():
        return "none"
    if word[0].isupper() and word[1:] == word[1:].lower():
        return "first"
    return "all" if word == word.upper() else "some"


def suffix(word: str, letters: int) -> str:
    """The last letters, lower-cased; every digit is 0, because numbers differ in little else."""
    return re.sub(r"\d", "0", word.lower())[-letters:]
