#!/usr/bin/env python3
"""Prints Sources/SyncStore/Crypto/NFCTable.swift from the Unicode data of the Python that runs it.

Usage: scripts/nfc-table.py > Sources/SyncStore/Crypto/NFCTable.swift. The version of the data is part of a
format (schemas/keys.md, "The bytes of a passphrase"): a later one must not change the bytes of a text, which
Unicode promises for all assigned characters.
"""
import unicodedata

HEADING = '''/// The data of NFC (UAX #15) from the Unicode Character Database, version %s, written by
/// `scripts/nfc-table.py`. The algorithm is in `NFC`. Characters of later versions are not in it: the key of
/// a passphrase must not depend on when the program was built.
enum NFCTable {
'''


def lines(words):
    line = ""
    for word in words:
        if len(line) + 1 + len(word) > 100:
            yield line
            line = word
        else:
            line = (line + " " + word).strip()
    yield line


def literal(comment, name, words):
    print("\n".join("  /// " + part for part in comment))
    print('  static let %s = """' % name)
    print(" \\\n".join("    " + line for line in lines(words)))
    print('    """')


decompositions, classes = [], []
for code in range(0x110000):
    character = chr(code)
    # Hangul is computed; surrogates are no characters.
    if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code < 0xE000:
        continue
    mapping = unicodedata.decomposition(character)
    if mapping and not mapping.startswith("<"):
        whole = unicodedata.normalize("NFD", character)
        composes = " " in mapping and unicodedata.normalize("NFC", whole) == character
        parts = "+".join("%x" % int(part, 16) for part in mapping.split())
        decompositions.append("%x%s%s" % (code, "=" if composes else ">", parts))
    number = unicodedata.combining(character)
    if number and classes and classes[-1][1:] == [code - 1, number]:
        classes[-1][1] = code
    elif number:
        classes.append([code, code, number])

print(HEADING % unicodedata.unidata_version, end="")
literal(
    ["Canonical decompositions, but for Hangul, in hexadecimal digits: `=` if the pair composes again, `>`",
     "if not."], "decompositions", decompositions)
print()
literal(
    ["Canonical combining classes other than 0: a range in hexadecimal digits, and the class."], "classes",
    ["%x%s:%d" % (first, "" if first == last else "-%x" % last, number) for first, last, number in classes])
print("}")
