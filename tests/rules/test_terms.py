"""Terms: pieces of the folded text, the same in texts and queries, for any input."""

from __future__ import annotations

import subprocess
import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts import limits
from engrain.rules.folding import fold
from engrain.rules.stems import cut
from engrain.rules.terms import TERM_CHARACTERS_MAX, episode_terms, query_terms, terms

DAY_US = limits.DAY_US
MAY_8_2023 = 19_485 * DAY_US

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=60)
WORDS = """
Running studies don't O'Brien's ação AVIÕES getUserName foo_bar::baz v1.2.3 C++ C# e-mail
ana.b@example.com 2023-05-08 3.14 東京大学で猫 ภาษาไทย 한국어 हिन्दी Ångström Straße ﬁne
İstanbul (( '' \u200d ÆØ ｆｕｌｌ １２３
"""
words = st.sampled_from(WORDS.split())
mixed_text = st.lists(st.one_of(words, any_text), max_size=8).map(" ".join)


@pytest.mark.invariant("INV-18")
@settings(max_examples=500, deadline=None)
@given(mixed_text)
def test_every_term_is_a_substring_of_the_folded_text(text):
    folded = fold(text)
    for term in terms(text):
        assert term, "no term is empty"
        assert term in folded
        assert len(term) <= TERM_CHARACTERS_MAX
        assert not set(term) & set("\n\t \0")


@pytest.mark.invariant("INV-18")
@settings(max_examples=300, deadline=None)
@given(mixed_text)
def test_a_query_asks_for_nothing_but_terms_of_its_text_each_once(text):
    asked = query_terms(text)
    assert set(asked) <= set(terms(text))
    assert len(asked) == len(set(asked)) <= limits.query_terms_max
    assert bool(asked) == bool(terms(text))


@settings(max_examples=300, deadline=None)
@given(mixed_text)
def test_folding_twice_changes_nothing_and_canonical_forms_fold_alike(text):
    folded = fold(text)
    assert fold(folded) == folded
    assert fold(unicodedata.normalize("NFD", text)) == fold(unicodedata.normalize("NFC", text))


@settings(max_examples=200, deadline=None)
@given(st.text("abcdefghijklmnopqrstuvwxyz", max_size=20))
def test_a_stem_is_a_prefix_of_its_word(word):
    assert word.startswith(cut(word))
    assert len(cut(word)) >= min(3, len(word))


@pytest.mark.parametrize(
    "family",
    [
        "study studies studied studying",
        "run running runs",
        "hope hoping hoped hopes",
        "paint painting painted paints painter",
        "mother mothers",
        "server servers",
        "create creates creating created",
        "city cities",
        "happy happiness",
        "gato gata gatos gatas",
        "falar falou falando falaram falava falamos",
        "comprei comprou comprar compras comprando",
        "avião aviões aviao avioes",
        "informação informações",
        "mulher mulheres",
        "médico médica medicos",
        "trabalho trabalhar trabalhei trabalhando",
    ],
)
def test_inflections_of_a_word_share_one_term(family):
    assert len({tuple(terms(word)) for word in family.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("house", "horse"), ("letter", "let"), ("care", "cat"), ("plan", "play"), ("caro", "casa")],
)
def test_different_words_keep_different_terms(one, other):
    assert terms(one) != terms(other)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("order 4711 came", "4711"),
        ("it costs 3.14 now", "3.14"),
        ("due 2026-03-14.", "2026-03-14"),
        ("due 14/03/2026,", "14/03/2026"),
        ("at 5:30 sharp", "5:30"),
        ("mail ana.b+x@mail.example.org!", "ana.b+x@mail.example.org"),
        ("call parse_line() twice", "parse_line"),
        ("std::vector<int>", "std::vector"),
        ("read getUserName here", "getusername"),
        ("read getUserName here", "user"),
        ("see src/engrain/rules/terms.py", "src/engrain/rules/terms.py"),
        ("release v1.2.3-rc1", "v1.2.3-rc1"),
        ("I write C++ and C#", "c++"),
        ("I write C++ and C#", "c#"),
    ],
)
def test_numbers_dates_identifiers_and_addresses_survive_whole(text, term):
    assert term in terms(text)
    assert term in query_terms(text)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("我去年搬到了北京", ["去年", "搬到", "北京"]),
        ("京都の紅葉を見た", ["京都", "紅葉", "葉を"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("한국어", ["한국", "국어"]),
        ("ภาษาไทย", ["ภา", "ไท", "ทย"]),
        ("ພາສາລາວ", ["ພາ", "ລາ"]),
        ("ភាសាខ្មែរ", ["ភា", "សា"]),
        ("မြန်မာ", ["မာ"]),
    ],
)
def test_scripts_without_spaces_are_cut_into_pairs_of_characters(text, pairs):
    assert set(pairs) <= set(terms(text))
    assert all(len(term) <= 2 for term in terms(text))


def test_one_han_character_is_found_inside_a_word():
    assert set(query_terms("猫")) <= set(terms("黒猫が好き"))


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("pizza 🍕!", "🍕"),
        ("done✅🎉", "🎉"),
        ("日本🍣です", "🍣"),
        ("coffee ☕\ufe0f first", "☕"),
        ("agreed 👍🏽", "👍"),
        ("flown to 🇵🇹🇧🇷", "🇧🇷"),
        ("👨\u200d👩\u200d👧 at home", "👩"),
    ],
)
def test_an_emoji_is_a_word(text, term):
    assert term in terms(text)
    assert query_terms(term) == [term]


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        ("MARÇO", "marco"),
        ("Köln", "koln"),
        ("ｆｕｌｌ", "full"),
        ("don’t", "don't"),
        ("Ærø", "aero"),
    ],
)
def test_case_accents_width_and_apostrophes_make_no_difference(text, alike):
    assert terms(text) == terms(alike)


def test_marks_that_tell_words_apart_stay():
    assert terms("が") != terms("か")
    assert terms("हिन्दी") == ["हिन्दी"]


def test_function_words_are_indexed_but_asked_for_only_alone():
    assert "the" in terms("the heron")
    assert query_terms("what did the heron do?") == ["heron"]
    assert query_terms("onde está a garça") == ["garc"]
    assert query_terms("who are you") == ["who", "are", "you"]


def test_of_a_long_turn_the_beginning_and_the_end_are_asked_for():
    asked = query_terms(" ".join(f"w{at}" for at in range(1_000)))
    assert len(asked) == limits.query_terms_max
    assert asked[0] == "w0"
    assert asked[-1] == "w999"


def test_speaker_and_day_are_terms_of_an_episode():
    found = episode_terms("I moved", speaker="Ana Souza", occurred_from=MAY_8_2023)
    assert {"ana", "souz", "2023-05-08", "2023", "8", "may", "mai"} <= set(found)
    assert episode_terms("I moved", speaker=None, occurred_from=None) == terms("I moved")


@pytest.mark.parametrize("moment", [-(2**63), 2**63 - 1, -1, 0])
def test_any_moment_has_date_words_or_none(moment):
    found = episode_terms("", speaker=None, occurred_from=moment)
    assert found == [] or found[0][:4].isdigit()


@pytest.mark.invariant("INV-18")
@pytest.mark.parametrize(
    "text",
    [
        "(" * 3_000,
        "a" * 65_536,
        "a." * 30_000,
        "a-" * 30_000,
        "'" * 65_536,
        "aA" * 30_000,
        "é" * 30_000,
        "e\u0301" * 30_000,
        "猫" * 20_000,
        "_" * 65_536,
        "n't" * 20_000,
        "😀" * 10_000,
        "\u0301" * 30_000,
        "क्" * 20_000,
    ],
)
def test_hostile_text_is_cut_in_little_time(text):
    began = time.perf_counter()
    query_terms(text)
    assert time.perf_counter() - began < 1.0


def test_importing_engrain_loads_no_stemmer():
    program = "import sys, engrain; sys.exit('Stemmer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
