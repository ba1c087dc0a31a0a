"""stand-in"""


def twin_text(t):
    return "".join(c for c in t.lower() if c.isalnum())


def similarity(a, b):
    return len(a & b) / max(1, len(a | b))
