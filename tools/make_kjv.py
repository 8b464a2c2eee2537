#!/usr/bin/env python3
"""Writes data/kjv.txt from the program `bible` of Debian's bible-kjv package.

    apt-get install bible-kjv && tools/make_kjv.py >data/kjv.txt

One verse a line as "chapter:verse text", an empty line before every chapter, and the name of a book on a line of its
own before its first.
"""

import re
import subprocess
import sys

BOOKS = {
    "Ge": "Genesis", "Exo": "Exodus", "Lev": "Leviticus", "Num": "Numbers", "Deu": "Deuteronomy", "Josh": "Joshua",
    "Jdgs": "Judges", "Ruth": "Ruth", "1Sm": "1 Samuel", "2Sm": "2 Samuel", "1Ki": "1 Kings", "2Ki": "2 Kings",
    "1Chr": "1 Chronicles", "2Chr": "2 Chronicles", "Ezra": "Ezra", "Neh": "Nehemiah", "Est": "Esther", "Job": "Job",
    "Psa": "Psalms", "Prv": "Proverbs", "Eccl": "Ecclesiastes", "SSol": "Song of Solomon", "Isa": "Isaiah",
    "Jer": "Jeremiah", "Lam": "Lamentations", "Eze": "Ezekiel", "Dan": "Daniel", "Hos": "Hosea", "Joel": "Joel",
    "Amos": "Amos", "Obad": "Obadiah", "Jonah": "Jonah", "Mic": "Micah", "Nahum": "Nahum", "Hab": "Habakkuk",
    "Zep": "Zephaniah", "Hag": "Haggai", "Zec": "Zechariah", "Mal": "Malachi", "Mat": "Matthew", "Mark": "Mark",
    "Luke": "Luke", "John": "John", "Acts": "Acts", "Rom": "Romans", "1Cor": "1 Corinthians", "2Cor": "2 Corinthians",
    "Gal": "Galatians", "Eph": "Ephesians", "Phi": "Philippians", "Col": "Colossians", "1Th": "1 Thessalonians",
    "2Th": "2 Thessalonians", "1Tim": "1 Timothy", "2Tim": "2 Timothy", "Titus": "Titus", "Phmn": "Philemon",
    "Heb": "Hebrews", "Jas": "James", "1Pet": "1 Peter", "2Pet": "2 Peter", "1Jn": "1 John", "2Jn": "2 John",
    "3Jn": "3 John", "Jude": "Jude", "Rev": "Revelation",
}  # fmt: skip
VERSES = 31102
VERSE = re.compile(r"([1-3]?[A-Za-z]+)(\d+):(\d+) (.*)")


def read_verses():
    """(book, chapter, verse, text) of every verse, in order."""
    out = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, capture_output=True, text=True).stdout
    verses = [VERSE.fullmatch(line).groups() for line in out.splitlines()]
    if len(verses) != VERSES or [*dict.fromkeys(verse[0] for verse in verses)] != [*BOOKS]:
        sys.exit("tools/make_kjv.py: `bible` printed another text than expected")
    return verses


def main():
    place = (None, None)
    for book, chapter, verse, text in read_verses():
        if book != place[0]:
            print("" if place[0] is None else "\n", BOOKS[book].upper(), sep="")
        if (book, chapter) != place:
            print()
        place = (book, chapter)
        print(f"{chapter}:{verse}", *text.split())


if __name__ == "__main__":
    main()
