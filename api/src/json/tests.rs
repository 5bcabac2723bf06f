//! Rows of accepted and refused documents, and what is read from them.

use super::*;

fn read(text: &str) -> Value<'_> {
    parse(text.as_bytes(), Limits::DOCUMENT).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(document: &[u8]) -> String {
    match parse(document, Limits::DOCUMENT) {
        Ok(value) => panic!("{} was accepted as {value:?}", String::from_utf8_lossy(document)),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let table: [(&str, &str, &str); 35] = [
        ("nothing", "", "line 1, column 1: expected a value, found the end of the document"),
        ("only blanks", " \n ", "line 2, column 2: expected a value, found the end of the document"),
        ("open object", "{", "line 1, column 2: expected a key in double quotes or '}', found the end of the document"),
        ("key without quotes", "{a: 1}", "line 1, column 2: expected a key in double quotes or '}', found 'a'"),
        ("single quotes", "{'a': 1}", "line 1, column 2: expected a key in double quotes or '}', found '\\''"),
        ("no colon", r#"{"a" 1}"#, "line 1, column 6: expected ':' after the key, found '1'"),
        ("no value", r#"{"a":}"#, "line 1, column 6: expected a value, found '}'"),
        ("trailing comma in object", "{\"a\": 1,\n}", "line 2, column 1: expected a key in double quotes, found '}'"),
        ("trailing comma in list", "[1,]", "line 1, column 4: expected a value, found ']'"),
        ("no comma in object", r#"{"a": 1 "b": 2}"#, "line 1, column 9: expected ',' or '}', found '\"'"),
        ("no comma in list", "[1 2]", "line 1, column 4: expected ',' or ']', found '2'"),
        ("wrong bracket in list", "[1}", "line 1, column 3: expected ',' or ']', found '}'"),
        ("wrong bracket in object", r#"{"a":1]"#, "line 1, column 7: expected ',' or '}', found ']'"),
        ("more after it", "{} x", "line 1, column 4: expected nothing after the document, found 'x'"),
        (
            "line comment",
            "{\n  // why\n}",
            "line 2, column 3: comments are not allowed in JSON; expected a key in double quotes or '}'",
        ),
        ("block comment", "[1 /* one */]", "line 1, column 4: comments are not allowed in JSON; expected ',' or ']'"),
        (
            "comment after",
            "{} // end",
            "line 1, column 4: comments are not allowed in JSON; expected nothing after the document",
        ),
        (
            "byte order mark",
            "\u{feff}{}",
            "line 1, column 1: a byte order mark is before the document; save it as UTF-8 without one",
        ),
        ("unknown word", "nope", "line 1, column 1: expected a value, found 'n'"),
        ("word with a tail", "nullx", "line 1, column 5: expected nothing after the document, found 'x'"),
        ("not a number", "NaN", "line 1, column 1: expected a value, found 'N'"),
        ("plus", "+1", "line 1, column 1: expected a value, found '+'"),
        ("only minus", "[-]", "line 1, column 3: expected a digit, found ']'"),
        ("leading zero", "01", "line 1, column 2: expected no digit after a leading zero, found '1'"),
        ("no digit before the point", ".5", "line 1, column 1: expected a value, found '.'"),
        ("no digit after the point", "1.", "line 1, column 3: expected a digit, found the end of the document"),
        ("empty exponent", "1e+", "line 1, column 4: expected a digit, found the end of the document"),
        ("open text", "\"abc", "line 1, column 5: expected a closing '\"', found the end of the document"),
        (
            "newline in text",
            "\"é\n\"",
            "line 1, column 3: expected an escape such as \\n for a control character in text, found '\\n'",
        ),
        ("unknown escape", r#""\x""#, "line 1, column 3: expected one of \" \\ / b f n r t u after '\\', found 'x'"),
        (
            "short unicode escape",
            r#""\u12""#,
            "line 1, column 6: expected four hexadecimal digits after \\u, found '\"'",
        ),
        (
            "lone first half",
            r#""\ud83d""#,
            "line 1, column 8: expected the second half of a surrogate pair, such as \\uDE00, found '\"'",
        ),
        (
            "wrong second half",
            r#""\ud83dA""#,
            "line 1, column 8: expected the second half of a surrogate pair, such as \\uDE00, found 'A'",
        ),
        (
            "lone second half",
            r#""\ude00""#,
            "line 1, column 8: expected the first half of a surrogate pair before the second, found '\"'",
        ),
        (
            "escape at the end",
            "\"\\",
            "line 1, column 3: expected one of \" \\ / b f n r t u after '\\', found the end of the document",
        ),
    ];
    for (case, document, message) in table {
        assert_eq!(refusal(document.as_bytes()), message, "{case}");
    }
}

#[test]
fn limits_are_named_in_the_refusal() {
    let small = Limits { bytes: 8, depth: 2 };
    assert_eq!(
        parse(b"[1, 2, 3]", small).unwrap_err().to_string(),
        "line 1, column 1: the document has 9 bytes, allowed are 8"
    );
    assert_eq!(
        parse(b"[[[1]]]", small).unwrap_err().to_string(),
        "line 1, column 3: objects and lists inside each other more than 2 deep"
    );
    assert!(parse(b"[[1]]", small).is_ok());
    assert_eq!(refusal(b"{\"a\": \"\xff\"}"), "line 1, column 8: the document is not UTF-8");
}

#[test]
fn no_depth_overflows_a_small_stack() {
    let stack = 256 * 1024;
    let thread = std::thread::Builder::new().stack_size(stack).spawn(|| {
        let deep = |levels: usize| format!("{}{}{}", "[".repeat(levels), 1, "]".repeat(levels));
        let fits = deep(64);
        let mut value = read(&fits);
        let mut levels = 0;
        while let Some(inner) = value.items().next() {
            value = inner;
            levels += 1;
        }
        assert_eq!((levels, value.as_i64()), (64, Some(1)));
        for text in [deep(65), deep(100_000), "{\"a\":".repeat(100_000), "[{\"a\":".repeat(100_000)] {
            assert!(refusal(text.as_bytes()).ends_with("inside each other more than 64 deep"));
        }
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn text_is_decoded() {
    let table = [
        (r#""plain""#, "plain"),
        (r#""""#, ""),
        (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r#""\u00e9\u20AC""#, "é€"),
        (r#""\ud83d\ude00!""#, "😀!"),
        (r#""raw 😀""#, "raw 😀"),
        (r#""a\u0000b""#, "a\0b"),
        (r#""[{\"}],:""#, "[{\"}],:"),
    ];
    for (raw, decoded) in table {
        assert_eq!(read(raw).as_text().as_deref(), Some(decoded), "{raw}");
        assert_eq!(read(&quoted(decoded).to_string()).as_text().as_deref(), Some(decoded), "{raw} written again");
    }
    assert!(matches!(read(r#""plain""#).as_text(), Some(std::borrow::Cow::Borrowed(_))));
}

#[test]
fn numbers_are_read_as_what_they_are() {
    let table = [
        ("0", Some(0), Some(0), 0.0),
        ("-0", Some(0), Some(0), 0.0),
        ("10", Some(10), Some(10), 10.0),
        ("10.0", Some(10), Some(10), 10.0),
        ("1e1", Some(10), Some(10), 10.0),
        ("10.5", None, None, 10.5),
        ("-7", Some(-7), None, -7.0),
        ("9223372036854775807", Some(i64::MAX), Some(i64::MAX as u64), 9.223372036854776e18),
        ("18446744073709551615", None, Some(u64::MAX), 18446744073709551615.0),
        ("1e17", None, None, 1e17),
        ("1e999", None, None, f64::INFINITY),
    ];
    for (raw, signed, unsigned, double) in table {
        let value = read(raw);
        assert_eq!((value.as_i64(), value.as_u64(), value.as_f64()), (signed, unsigned, Some(double)), "{raw}");
    }
    assert_eq!(read("\"1\"").as_i64(), None);
    assert_eq!(read("null").as_f64(), None);
    assert_eq!((read("true").as_bool(), read("false").as_bool(), read("0").as_bool()), (Some(true), Some(false), None));
}

#[test]
fn values_are_found_byte_for_byte() {
    let text = "\n{ \"signatures\" : [ { \"keyid\":\"k\" } ],\n  \"signed\":  {\"x\": [1,2 , {}], \"y\":\"}\\\"\"}  , \"z\":-1.5e3}\n";
    let root = read(text);
    assert_eq!(root.kind(), Kind::Object);
    let signed = root.get("signed").unwrap();
    assert_eq!(signed.raw(), "{\"x\": [1,2 , {}], \"y\":\"}\\\"\"}");
    assert_eq!(signed.position(), Position { line: 3, column: 14 });
    assert_eq!(signed.get("y").unwrap().as_text().as_deref(), Some("}\""));
    let items: Vec<_> = signed.get("x").unwrap().items().map(|item| (item.kind(), item.raw())).collect();
    assert_eq!(items, [(Kind::Number, "1"), (Kind::Number, "2"), (Kind::Object, "{}")]);
    let names: Vec<_> = root.entries().map(|(name, value)| (name.into_owned(), value.kind())).collect();
    let expected = [("signatures", Kind::List), ("signed", Kind::Object), ("z", Kind::Number)];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(root.get("z").unwrap().as_f64(), Some(-1500.0));
    assert!(root.get("missing").is_none());
    assert!(root.get("z").unwrap().entries().next().is_none());
    assert!(root.items().next().is_none());
    assert!(read("{}").entries().next().is_none());
    assert!(read("[]").items().next().is_none());
}

#[test]
fn a_key_given_twice_is_the_last_one_or_refused() {
    let root = read("{\"a\": 1, \"\\u0061\": 2}");
    assert_eq!(root.get("a").and_then(Value::as_i64), Some(2));
    assert_eq!(root.get_once("a").unwrap_err().to_string(), "line 1, column 20: the key is given more than once");
    assert_eq!(root.get_once("b").map(|found| found.is_none()), Ok(true));
}

#[test]
fn a_value_shows_no_content() {
    let root = read(r#"{"psk": "planted-secret"}"#);
    assert_eq!(
        format!("{root:?} {:?}", root.get("psk")),
        "an object at line 1, column 1 Some(text at line 1, column 9)"
    );
}

/// Cutting, flipping and repeating bytes of a good document never panics, and what is accepted can be walked.
#[test]
fn damaged_documents_never_panic() {
    let good = r#"{"a": [1, -2.5e+3, true, null, "\ud83d\ude00\n"], "b": {"c": {"d": []}}, "é": "ß"}"#.as_bytes();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut document = good.to_vec();
        for _ in 0..=random(3) {
            let at = random(document.len());
            match random(4) {
                0 => document[at] = b"{}[]\",:\\u0e-tfn \n/"[random(18)],
                1 => document[at] = u8::try_from(random(256)).unwrap(),
                2 => drop(document.remove(at)),
                _ => document.insert(at, document[random(document.len())]),
            }
        }
        if let Ok(root) = parse(&document, Limits::DOCUMENT) {
            accepted += 1;
            let mut open = vec![root];
            while let Some(value) = open.pop() {
                assert!(
                    parse(value.raw().as_bytes(), Limits::DOCUMENT).is_ok(),
                    "{:?}",
                    String::from_utf8_lossy(&document)
                );
                let _ = (value.as_text(), value.as_i64(), value.as_bool(), value.position());
                open.extend(value.items());
                open.extend(value.entries().map(|(_, value)| value));
            }
        }
    }
    assert!(accepted > 1_000, "only {accepted} accepted: the damage is too heavy to test the walk");
}
