"""stand-in"""

import re


def fold(t):
    return t.lower()


def terms(t):
    return re.findall(r"\w+", fold(t))


def query_terms(t):
    return list(dict.fromkeys(terms(t)))[:64]


def episode_terms(text, *, speaker, occurred_from):
    return terms(text)


def pack_terms(c, l):
    return ("%d" % l + "".join(f"\n{t}\t{n}" for t, n in c.items()) + "\n").encode()


def unpack_terms(p):
    a = p.decode().split("\n")
    return ({x.split("\t")[0]: int(x.split("\t")[1]) for x in a[1:-1]}, int(a[0]))


def length_of_packed(p):
    return int(p[: p.index(b"\n")])


def count_in_packed(p, t):
    n = b"\n" + t.encode() + b"\t"
    i = p.find(n)
    return 0 if i < 0 else int(p[i + len(n) : p.index(b"\n", i + len(n))])
