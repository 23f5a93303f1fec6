import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.embedded.quantities import canonical, compare
from prov_host.quantity import parse_bytes


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("0.1", "100m"),
        ("1e9", "1e9"),
        ("5e0", "5"),
        ("1000k", "1M"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-1", "-1"),
        ("1023Ki", "1023Ki"),
        ("1E", "1E"),
        ("100Ei", "9223372036854775807"),
    ],
)
def test_quantities_are_stored_in_canonical_form(given: str, stored: str) -> None:
    assert canonical(given) == stored


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1gi", "Gi", "1e", "--1", "1" * 100, "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        canonical(text)


SUFFIXES = st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"])


@settings(deadline=None)
@given(st.integers(0, 10**6), SUFFIXES)
def test_the_canonical_form_means_the_same_number_of_bytes(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert parse_bytes(canonical(text)) == parse_bytes(text)
    assert canonical(canonical(text)) == canonical(text)


@settings(deadline=None)
@given(st.integers(0, 10**6), SUFFIXES, st.integers(0, 10**6), SUFFIXES)
def test_comparison_is_by_value(left: int, left_suffix: str, right: int, right_suffix: str) -> None:
    a, b = f"{left}{left_suffix}", f"{right}{right_suffix}"
    assert compare(a, b) == (parse_bytes(a) > parse_bytes(b)) - (parse_bytes(a) < parse_bytes(b))
