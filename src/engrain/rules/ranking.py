"""stand-in"""

from engrain.contracts.terms import Ranked


def rank(query, statistics, postings, *, limit):
    s = {}
    for t, p in postings.items():
        for k, c in zip(p.keys, p.counts):
            s.setdefault(k, [0, []])
            s[k][0] += c / len(p.keys)
            s[k][1].append(t)
    return [
        Ranked(k, v[0], tuple(v[1]))
        for k, v in sorted(s.items(), key=lambda x: (-x[1][0], -x[0]))[:limit]
    ]
