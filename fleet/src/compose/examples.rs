//! The worked examples of `docs/fragments.md`, run as they stand there.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Fragment, Key, Library, compose, missing};

const PAGE: &str = include_str!("../../../docs/fragments.md");

#[derive(Default)]
struct Example {
    title: String,
    library: Library,
    part: Option<Map<String, Value>>,
    device: Option<Map<String, Value>>,
    complaints: String,
}

#[test]
fn the_page_says_what_the_server_does() {
    let examples = read(PAGE);
    assert_eq!(examples.len(), 10, "the page promises ten examples");
    for example in examples {
        let Example { title, library, part, device, complaints } = example;
        let (part, device) = (part.expect("a part"), device.expect("a device"));
        let composed = compose(&part, &library).unwrap_or_else(|error| panic!("{title}: {error}"));
        // As text, so that the order of keys is part of the promise.
        let wanted = Value::Object(device).to_string();
        assert_eq!(composed.text, wanted, "{title}");
        let said: Vec<String> = composed.complaints.iter().map(ToString::to_string).collect();
        assert_eq!(said.join("\n"), complaints.trim_end(), "{title}");
    }
}

fn read(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            examples.push(Example { title: title.into(), ..Example::default() });
        }
        let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
        let text: String = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        let example = examples.last_mut().expect("a block stands under a title");
        let words: Vec<&str> = kind.split(' ').collect();
        let object = || match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => object,
            other => panic!("{}: {kind}: {other:?}", example.title),
        };
        match words[..] {
            ["json", "part"] => example.part = Some(object()),
            ["json", "device"] => example.device = Some(object()),
            ["text", "complaints"] => example.complaints = text,
            ["json", "fragment", id] | ["json", "fragment", id, "version", _] => {
                let key = Key { id: id.into(), version: words.get(4).map(ToString::to_string) };
                let fragment = Fragment::read("1", &text).unwrap_or_else(|| panic!("{}: {kind}", example.title));
                example.library.add(key, Some(Arc::new(fragment)));
            }
            _ => panic!("{}: unknown block {kind}", example.title),
        }
    }
    for example in &mut examples {
        for key in missing(example.part.as_ref().expect("a part"), &example.library) {
            example.library.add(key, None);
        }
    }
    examples
}
