//! Rows for what the worked examples do not show: limits, cycles, order, hostile documents.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{wire::*, *};

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

fn library(fragments: &[(&str, Value)]) -> Library {
    let mut library = Library::default();
    for (id, config) in fragments {
        let fragment = Fragment::read("7", &config.to_string()).expect("an object");
        library.add(Key { id: (*id).into(), version: None }, Some(Arc::new(fragment)));
    }
    library
}

fn composed(part: Value, fragments: &[(&str, Value)]) -> Composed {
    compose(&object(part), &library(fragments)).expect("composes")
}

#[test]
fn merging() {
    let table = [
        // case                             fragment                            part                            device
        ("scalar over object", json!({"a": {"b": 1}}), json!({"a": 2}), json!({"a": 2})),
        ("object over scalar", json!({"a": 2}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ("null of nothing", json!({}), json!({"a": null}), json!({})),
        ("null inside", json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}})),
        ("an object emptied stays", json!({"a": {"b": 1}}), json!({"a": {"b": null}}), json!({"a": {}})),
        ("list of numbers", json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
        ("data in lists keeps nulls", json!({}), json!({"a": [null, {"b": null}]}), json!({"a": [null, {"b": null}]})),
        (
            "empty over named adds nothing",
            json!({"a": [{"name": "x"}]}),
            json!({"a": []}),
            json!({"a": [{"name": "x"}]}),
        ),
        ("empty over plain replaces", json!({"a": [1]}), json!({"a": []}), json!({"a": []})),
        (
            "named over unnamed replaces",
            json!({"a": [{"x": 1}]}),
            json!({"a": [{"name": "x"}]}),
            json!({"a": [{"name": "x"}]}),
        ),
        (
            "null in a named element",
            json!({"a": [{"name": "x", "k": 1}]}),
            json!({"a": [{"name": "x", "k": null}]}),
            json!({"a": [{"name": "x"}]}),
        ),
        ("null list", json!({"a": [{"name": "x"}]}), json!({"a": null}), json!({})),
    ];
    for (case, fragment, mut part, device) in table {
        part["fragments"] = json!(["f"]);
        let composed = composed(part, &[("f", fragment)]);
        assert_eq!(Value::Object(composed.config), device, "{case}");
        assert!(composed.complaints.is_empty(), "{case}: {:?}", composed.complaints);
    }
}

#[test]
fn a_null_of_a_later_fragment_removes_what_an_earlier_one_gave() {
    let fragments =
        [("one", json!({"a": 1, "b": 1})), ("inner", json!({})), ("two", json!({"fragments": ["inner"], "a": null}))];
    assert_eq!(composed(json!({"fragments": ["one", "two"]}), &fragments).text, r#"{"b":1}"#);
}

#[test]
fn the_revision_is_that_of_the_text_and_nothing_else() {
    let by_fragment = composed(json!({"fragments": ["f"]}), &[("f", json!({"a": 1}))]);
    let by_itself = composed(json!({"a": 1}), &[]);
    assert_eq!(by_fragment.revision, by_itself.revision);
    assert_eq!(by_itself.revision, "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862");
    assert_ne!(by_itself.revision, composed(json!({"a": 2}), &[]).revision);
    assert_eq!(by_fragment.used, [Used { id: "f".into(), revision: "7".into() }]);
}

#[test]
fn a_cycle_is_refused_when_saved_and_harmless_when_met() {
    let fragments = [
        ("a", json!({"fragments": ["b"], "x": 1})),
        ("b", json!({"fragments": ["c"], "y": 2})),
        ("c", json!({"fragments": ["a"]})),
    ];
    let library = library(&fragments);
    let refusal = check_fragment("a", 0, &object(fragments[0].1.clone()), &library).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the fragment would contain itself: a → b → c → a; take one of these references out"
    );
    let composed = composed(json!({"fragments": ["a"]}), &fragments);
    assert_eq!(composed.text, r#"{"y":2,"x":1}"#);
    assert_eq!(composed.complaints[0].to_string(), "fragment c: fragment a contains itself; it was left out here");
}

#[test]
fn nine_levels_are_one_too_many() {
    let level = |n: usize| (format!("f{n}"), json!({"fragments": [format!("f{}", n + 1)], format!("k{n}"): n}));
    let owned: Vec<_> = (1..=9).map(level).collect();
    let fragments: Vec<_> = owned.iter().map(|(id, config)| (id.as_str(), config.clone())).collect();
    let composed = composed(json!({"fragments": ["f1"]}), &fragments);
    assert!(composed.config.contains_key("k8") && !composed.config.contains_key("k9"));
    assert_eq!(composed.complaints.len(), 1, "{:?}", composed.complaints);
    let library = library(&fragments);
    assert!(matches!(check_fragment("f1", 0, &object(owned[0].1.clone()), &library), Err(SaveRefusal::TooDeep { .. })));
    assert_eq!(
        check_fragment("f3", 0, &object(owned[2].1.clone()), &library),
        Ok(()),
        "f3 to f9, and f10 unknown: 8 levels"
    );
    let refused = check_fragment("f3", 1, &object(owned[2].1.clone()), &library).unwrap_err().to_string();
    assert!(refused.contains("8 levels: 1 above it → f3 → f4"), "{refused}");
    assert!(check_part(&object(json!({"fragments": ["f1"]})), &library).is_err());
    assert_eq!(check_part(&object(json!({"fragments": ["f3"]})), &library), Ok(()));
}

#[test]
fn fragments_that_double_at_each_level_end_in_a_refusal() {
    let owned: Vec<_> = (0..8)
        .map(|n| (format!("f{n}"), json!({"fragments": vec![format!("f{}", n + 1); 10]})))
        .chain([("f8".to_owned(), json!({"x": 1}))])
        .collect();
    let fragments: Vec<_> = owned.iter().map(|(id, config)| (id.as_str(), config.clone())).collect();
    let part = object(json!({"fragments": ["f0"]}));
    assert_eq!(compose(&part, &library(&fragments)), Err(ComposeError::TooManyFragments));
    assert!(check_part(&part, &library(&fragments)).is_err(), "nine levels, and walked once each");
}

#[test]
fn a_variable_that_multiplies_ends_in_a_refusal() {
    let uses: Map<_, _> = (0..1000).map(|n| (n.to_string(), json!({"$variable": {"name": "x"}}))).collect();
    let part = json!({"fragments": [{"id": "f", "variables": {"x": "y".repeat(100_000)}}]});
    assert_eq!(compose(&object(part), &library(&[("f", Value::Object(uses))])), Err(ComposeError::TooMuchWork));
}

#[test]
fn a_result_no_device_would_read_is_refused() {
    let large = json!({"a": "x".repeat(COMPOSED_MAX_BYTES)});
    assert!(matches!(compose(&object(large), &library(&[])), Err(ComposeError::TooLarge { .. })));
    let mut deep = json!(1);
    (0..=NESTING_MAX).for_each(|_| deep = json!({ "a": deep.clone() }));
    assert_eq!(compose(&object(deep.clone()), &library(&[])), Err(ComposeError::TooDeep));
    assert!(compose(&object(deep["a"].clone()), &library(&[])).is_ok());
}

#[test]
fn variables() {
    let table = [
        // case               in the fragment                                             given                device
        ("text", json!({"$variable": {"name": "x"}}), json!({"x": "a"}), json!({"k": "a"})),
        ("null given removes", json!({"$variable": {"name": "x"}}), json!({"x": null}), json!({})),
        (
            "in a list",
            json!([1, {"$variable": {"name": "x"}}, {"$variable": {"name": "y"}}]),
            json!({"x": 2}),
            json!({"k": [1, 2]}),
        ),
        (
            "beside other keys it is data",
            json!({"$variable": {"name": "x"}, "z": 1}),
            json!({"x": 2}),
            json!({"k": {"$variable": {"name": "x"}, "z": 1}}),
        ),
        (
            "a variable among the values of the part is nobody's",
            json!({"$variable": {"name": "x"}}),
            json!({"x": {"v": [{"$variable": {"name": "x"}}, 1]}}),
            json!({"k": {"v": [1]}}),
        ),
        ("without a name", json!({"$variable": "x"}), json!({"x": 2}), json!({})),
    ];
    for (case, value, given, device) in table {
        let part = json!({"fragments": [{"id": "f", "variables": given}]});
        assert_eq!(Value::Object(composed(part, &[("f", json!({ "k": value }))]).config), device, "{case}");
    }
}

#[test]
fn mods() {
    let fragment = json!({"a": {"b": 1}, "list": [{"name": "x", "k": 1}], "plain": [1]});
    let table = [
        // case            mods                               device                                                        complaints
        (
            "set deep",
            json!([{"$set": {"a.c.d": 2}}]),
            json!({"a": {"b": 1, "c": {"d": 2}}, "list": [{"name": "x", "k": 1}], "plain": [1]}),
            0,
        ),
        ("set through a number", json!([{"$set": {"a.b.c": 2}}]), fragment.clone(), 1),
        ("set through a plain list", json!([{"$set": {"plain.b": {}}}]), fragment.clone(), 1),
        (
            "set an element",
            json!([{"$set": {"list.x": {"z": 1}}}]),
            json!({"a": {"b": 1}, "list": [{"name": "x", "z": 1}], "plain": [1]}),
            0,
        ),
        ("set an element to text", json!([{"$set": {"list.x": "z"}}]), fragment.clone(), 1),
        ("set null", json!([{"$set": {"a": null}}, {"$set": {"list": null}}]), json!({"plain": [1]}), 0),
        ("empty step", json!([{"$set": {"a..b": 1}}, {"$unset": {"": ""}}]), fragment.clone(), 2),
        ("endless path", json!([{"$set": {"a.".repeat(100_000) + "b": 1}}]), fragment.clone(), 1),
        ("unknown verb", json!([{"$push": {"a": 1}}, 3]), fragment.clone(), 2),
    ];
    for (case, mods, device, complaints) in table {
        let part = json!({"fragments": ["f"], "fragment_mods": [{"fragment_id": "f", "mods": mods}]});
        let composed = composed(part, &[("f", fragment.clone())]);
        assert_eq!(Value::Object(composed.config), device, "{case}");
        assert_eq!(composed.complaints.len(), complaints, "{case}: {:?}", composed.complaints);
    }
}

#[test]
fn a_mod_can_mean_one_use_of_a_fragment_used_twice() {
    let fragment = json!({"components": [{"name": "m"}]});
    let part = json!({
        "fragments": [{"id": "f", "prefix": "l"}, {"id": "f", "prefix": "r"}],
        "fragment_mods": [{"fragment_id": "f", "prefix": "r", "mods": [{"$set": {"components.r-m.k": 1}}]}],
    });
    assert_eq!(composed(part, &[("f", fragment)]).text, r#"{"components":[{"name":"l-m"},{"name":"r-m","k":1}]}"#);
}

#[test]
fn complaints_are_bounded() {
    let references: Vec<Value> = (0..100).map(|n| json!({ "bad": "x".repeat(n * 100) })).collect();
    let composed = composed(json!({ "fragments": references }), &[]);
    assert_eq!(composed.complaints.len(), 32);
    assert_eq!(composed.complaints[31].says, "69 more complaints; correct these first");
}

#[test]
fn json_and_the_wire() {
    let json = object(json!({"a": null, "b": true, "i": 3, "f": 1.5, "s": "x", "l": [1, {"k": -2}], "o": {}}));
    assert_eq!(from_struct(&to_struct(&json)), json);
    let table =
        [(10.0, json!(10)), (10.5, json!(10.5)), (-0.0, json!(0)), (1e300, json!(1e300)), (f64::NAN, json!(null))];
    for (number, value) in table {
        assert_eq!(from_wire(&prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(number)) }), value);
    }
}
