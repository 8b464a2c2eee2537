#include "fuzz/damage.h"

namespace penstock::test {
namespace {

TEST(Fuzz, DamagedTables) {
  feed_damaged({"Datum;\"x, y\";an;z\r\n04.03.2020;1.234,5;true;12,5 %\r\n05.03.2020;1.235,5;false;-3\r\n",
                ",date,x\n0,2020-03-04 12:30,1\n1,2020-03-05 12:30:15.5Z,NA\n", "1|2\n3|4\n", "sep=|\na|b\n1|2\n",
                "x,side\n1,left\n2,right\n3,left\n4,left\n5,right\n6,left\n7,\n8,left\n9,right\n1,left\n2,left\n"
                "3,right\n4,left\n5,left\n6,right\n7,left\n8,left\n9,right\n1,left\n2,left\n",
                "{\"x\": 1.5, \"side\": \"left, \\\"up\\\"\", \"on\": true}\n{\"y\": null, \"x\": -2e3}\n",
                "# by me\n# a  b\n1.5\t 2\n 3 4 \n", "year\tv\n1949\t1,234.5\n1950\t2\n",
                "@problemName T\n@timeStamps false\n@classLabel true a b\n@data\n1,2,3:4,5,?:a\n6:7:b\n"},
               {",",
                ";",
                "\t",
                "|",
                "\"",
                "\n",
                "\r\n",
                "sep=",
                "@data",
                ":",
                "%",
                "1,5",
                "1.5",
                "1,234",
                "1.234,5",
                "true",
                "2020-03-04",
                "03/04/2020",
                "Mar 4, 2020",
                "1949Q1",
                "2020-W53",
                "43894",
                "12:30 PM",
                "+15:59",
                "NA",
                "?",
                "\xc2\xa0",
                "\xa0%",
                "\xe2\x88\x92",
                "\xef\xbb\xbf",
                "\xff",
                "1e999",
                "nan",
                "Unnamed: 0",
                "column1",
                " ",
                "#",
                "{",
                "}\n{",
                "null",
                "[1]",
                "\"x\": "},
               [](const std::string& text, Random&) { return text; });
}

}  // namespace
}  // namespace penstock::test
