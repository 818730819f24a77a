"""Separators, decimal marks and encodings of text files."""

import codecs

import pandas as pd
import pytest

from gedikit.errors import DataError
from gedikit.tables import CsvDialect, dialect_of


@pytest.mark.parametrize(
    ("text", "separator", "decimal"),
    [
        ("a,b\n1.5,2\n", ",", "."),
        ("a;b\n1.5;2\n", ";", "."),
        ("a;b\n1,5;2\n-3,25;4\n", ";", ","),
        ("a\tb\n1,5\t2\n", "\t", ","),
        ("a|b|c\n1|x,y|2\n2|u,v|3\n", "|", "."),
        ('a,b\n"1,5",2\n"2,25",3\n', ",", ","),
        ('a,b\n"1,500",2\n"2,250",3\n', ",", "."),
        ("name;price\nx, y and z;1,5\nu, v;2,5\n", ";", ","),
        ('"a;b",c\n1,2\n', ",", "."),
        ("a\n1\n2\n", ",", "."),
        ("day;v\n01.02.2024;1,5\n", ";", ","),
    ],
)
def test_separator_and_decimal_mark(tmp_path, text, separator, decimal):
    (tmp_path / "t.csv").write_text(text)
    assert dialect_of(tmp_path / "t.csv") == CsvDialect("utf-8", separator, decimal)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings(tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes("größe;x\n1,5;Ö\n2,5;ß\n".encode(encoding))
    read = pd.read_csv(path, **dialect_of(path).options())
    assert list(read.columns) == ["größe", "x"]
    assert read["größe"].tolist() == [1.5, 2.5]
    assert read["x"].tolist() == ["Ö", "ß"]


def test_zeros_at_the_front_are_kept(tmp_path):
    (tmp_path / "t.csv").write_text("zip, n,zero,x\n01234, 1,0,0.5\n99999,20,0,007.5\n")
    dialect = dialect_of(tmp_path / "t.csv")
    assert dialect.codes == ("zip",)
    assert pd.read_csv(tmp_path / "t.csv", **dialect.options(("n",)))["zip"].tolist() == ["01234", "99999"]
    assert dialect.options(("n",))["dtype"] == {"zip": str, "n": str}


def test_a_letter_on_the_border_of_what_is_read_at_once(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n" + b"x" * ((1 << 20) - 5) + "ö,1\n".encode())
    assert dialect_of(tmp_path / "t.csv").encoding == "utf-8"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a text file"),
        (b"<!DOCTYPE html>\n<html>", "not a table of rows and columns: it begins with '<!doctype html>"),
        (b'{"a": [1, 2]}', "not a table"),
        (b"\n \n", "is empty"),
        (codecs.BOM_UTF8, "is empty"),
    ],
)
def test_what_is_not_a_table(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=words):
        dialect_of(tmp_path / "t.csv")
