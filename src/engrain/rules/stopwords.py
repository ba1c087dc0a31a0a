"""Words of English and Portuguese that say how a sentence is built and not what it is about.

They are indexed like any other word, and left out of a query that has other words. Words that name
something in the other language stay out of this list (ate, era, sao).
"""

from __future__ import annotations

from typing import Final

_ENGLISH: Final = """
a about after again all also am an and any are aren't as at be because been before being both but by
can can't could couldn't did didn't do does doesn't doing don't down each either else ever few for
from had hadn't has hasn't have haven't having he her here hers herself him himself his how i if in
into is isn't it its itself just let like many me might more most much must my myself neither no nor
not of off on once one only onto or other our ours ourselves out over own please same shall she
should shouldn't so some such than that the their theirs them themselves then there these they this
those through to too under until up upon us very was wasn't we were weren't what when where whether
which while who whom whose why will with won't would wouldn't yes yet you your yours yourself
yourselves
"""
_PORTUGUESE: Final = """
a ainda ao aos aquela aquelas aquele aqueles aquilo as cada com como cujo da das de dela delas
dele deles depois do dos e ela elas ele eles em entre essa essas esse esses esta estao estas
estava este estes estou eu foi foram ha isso isto ja la lhe lhes mas me mesma mesmo meu meus minha
minhas na nao nas nem no nos nossa nossas nosso nossos num numa o onde os ou para pela pelas pelo
pelos por porque quais qual quando que quem se sem ser seu seus so sobre sua suas tambem te tem
tenho ter teu teus tinha tu tua tuas um uma umas uns voce voces
"""

STOPWORDS: Final = frozenset(_ENGLISH.split()) | frozenset(_PORTUGUESE.split())
