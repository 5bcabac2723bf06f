//! The compiled messages against the tables of the wire contract, in both directions.
//!
//! Both sides become sets of rows that read the same; whatever stands in one only is a difference. The last test spoils
//! the compiled descriptors in every way a slip of the pen could, and asks that each is noticed.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

/// Our own service is not part of the contract with others, and `google.protobuf` is not ours.
const NOT_IN_TABLES: [&str; 2] = ["platform.fleet.v1", "google.protobuf"];

type Rows = BTreeSet<String>;

fn compiled() -> FileDescriptorSet {
    FileDescriptorSet::decode(api::pb::DESCRIPTORS).expect("built with this crate")
}

/// Lines of a table as columns, without comments and the line of titles.
fn table(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split('\t').collect())
}

fn fields_of_table() -> Rows {
    table(include_str!("../contract/fields.tsv"))
        .map(|row| {
            let [message, number, field, kind, label, _services, notes @ ..] = &row[..] else { panic!("{row:?}") };
            match *field {
                "(empty)" => format!("{message} has no fields"),
                "(reserved)" => format!("{message} {number} is reserved"),
                _ => {
                    let deprecated = if notes.contains(&"deprecated") { " deprecated" } else { "" };
                    format!("{message} {number} {field} {kind} {label}{deprecated}")
                }
            }
        })
        .collect()
}

fn enums_of_table() -> Rows {
    table(include_str!("../contract/enums.tsv")).map(|row| row[..3].join(" ")).collect()
}

/// All methods, and those of them whose messages the tables describe.
fn methods_of_table() -> (Rows, Rows) {
    let rows: Vec<_> = table(include_str!("../contract/methods.tsv")).collect();
    let text = |row: &Vec<&str>| row[..5].join(" ");
    (rows.iter().map(text).collect(), rows.iter().filter(|row| row[6] == "yes").map(text).collect())
}

fn in_tables(set: &FileDescriptorSet) -> impl Iterator<Item = &prost_types::FileDescriptorProto> {
    set.file.iter().filter(|file| !NOT_IN_TABLES.contains(&file.package()))
}

fn fields_compiled(set: &FileDescriptorSet) -> Rows {
    let mut rows = Rows::new();
    for file in in_tables(set) {
        for message in &file.message_type {
            add_message(&format!("{}.{}", file.package(), message.name()), message, &mut rows);
        }
    }
    rows
}

fn add_message(name: &str, message: &DescriptorProto, rows: &mut Rows) {
    let (entries, nested): (Vec<_>, Vec<_>) =
        message.nested_type.iter().partition(|inner| inner.options.as_ref().is_some_and(|options| options.map_entry()));
    for inner in nested {
        add_message(&format!("{name}.{}", inner.name()), inner, rows);
    }
    for range in &message.reserved_range {
        for number in range.start()..range.end() {
            rows.insert(format!("{name} {number} is reserved"));
        }
    }
    if message.field.is_empty() {
        rows.insert(format!("{name} has no fields"));
    }
    for field in &message.field {
        let entry = entries.iter().find(|entry| field.type_name() == format!(".{name}.{}", entry.name()));
        let (kind, label) = match entry {
            Some(entry) => {
                (format!("map<{},{}>", type_of(&entry.field[0]), type_of(&entry.field[1])), "map".to_owned())
            }
            None => (type_of(field), label_of(message, field)),
        };
        let deprecated =
            if field.options.as_ref().is_some_and(|options| options.deprecated()) { " deprecated" } else { "" };
        rows.insert(format!("{name} {} {} {kind} {label}{deprecated}", field.number(), field.name()));
    }
}

fn type_of(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        other => other.as_str_name().trim_start_matches("TYPE_").to_ascii_lowercase(),
    }
}

fn label_of(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    match field.label() {
        Label::Repeated => "repeated".to_owned(),
        Label::Required => "required".to_owned(),
        Label::Optional if field.proto3_optional() => "optional".to_owned(),
        Label::Optional => match field.oneof_index {
            Some(index) => format!("oneof:{}", message.oneof_decl[usize::try_from(index).expect("small")].name()),
            None => "single".to_owned(),
        },
    }
}

fn enums_compiled(set: &FileDescriptorSet) -> Rows {
    fn add(scope: &str, enums: &[EnumDescriptorProto], rows: &mut Rows) {
        for kind in enums {
            rows.extend(
                kind.value.iter().map(|value| format!("{scope}.{} {} {}", kind.name(), value.number(), value.name())),
            );
        }
    }
    fn add_nested(scope: &str, messages: &[DescriptorProto], rows: &mut Rows) {
        for message in messages {
            let scope = format!("{scope}.{}", message.name());
            add(&scope, &message.enum_type, rows);
            add_nested(&scope, &message.nested_type, rows);
        }
    }
    let mut rows = Rows::new();
    for file in in_tables(set) {
        add(file.package(), &file.enum_type, &mut rows);
        add_nested(file.package(), &file.message_type, &mut rows);
    }
    rows
}

fn methods_compiled(set: &FileDescriptorSet) -> Rows {
    let mut rows = Rows::new();
    for file in in_tables(set) {
        for service in &file.service {
            for method in &service.method {
                let streaming = match (method.client_streaming(), method.server_streaming()) {
                    (false, false) => "unary",
                    (false, true) => "server-stream",
                    (true, false) => "client-stream",
                    (true, true) => "both-stream",
                };
                let (request, response) =
                    (method.input_type().trim_start_matches('.'), method.output_type().trim_start_matches('.'));
                rows.insert(format!(
                    "{}.{} {} {request} {response} {streaming}",
                    file.package(),
                    service.name(),
                    method.name()
                ));
            }
        }
    }
    rows
}

/// Everything in which descriptors and tables disagree.
fn differences(set: &FileDescriptorSet) -> Vec<String> {
    let (all_methods, listed_methods) = methods_of_table();
    let (fields, enums, methods) = (fields_compiled(set), enums_compiled(set), methods_compiled(set));
    let (table_fields, table_enums) = (fields_of_table(), enums_of_table());
    let mut found = Vec::new();
    let mut missing = |what: &str, wanted: &Rows, there: &Rows| {
        found.extend(wanted.difference(there).map(|row| format!("{what}: {row}")));
    };
    missing("only in the tables", &table_fields, &fields);
    missing("only in proto/", &fields, &table_fields);
    missing("only in the tables", &table_enums, &enums);
    missing("only in proto/", &enums, &table_enums);
    missing("only in the tables", &listed_methods, &methods);
    missing("only in proto/", &methods, &all_methods);
    found
}

#[test]
fn messages_are_the_contract() {
    let found = differences(&compiled());
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_tables_are_whole() {
    let (methods, listed) = methods_of_table();
    let services: BTreeSet<_> = methods.iter().filter_map(|row| row.split(' ').next()).collect();
    assert_eq!((methods.len(), listed.len(), services.len()), (160, 112, 9));
    assert_eq!((fields_of_table().len(), enums_of_table().len()), (1004, 85), "a table lost or gained rows");
}

#[test]
fn every_slip_is_noticed() {
    fn message<'a>(set: &'a mut FileDescriptorSet, package: &str, name: &str) -> &'a mut DescriptorProto {
        let files = set.file.iter_mut().filter(|file| file.package() == package);
        files.flat_map(|file| &mut file.message_type).find(|message| message.name() == name).expect(name)
    }
    fn app<'a>(set: &'a mut FileDescriptorSet, name: &str, field: &str) -> &'a mut FieldDescriptorProto {
        message(set, "platform.app.v1", name).field.iter_mut().find(|there| there.name() == field).expect(field)
    }
    type Slip = fn(&mut FileDescriptorSet);
    let table: [(&str, Slip, &str); 17] = [
        ("a wrong number", |s| app(s, "Robot", "name").number = Some(9), "platform.app.v1.Robot 9 name string single"),
        (
            "a wrong type",
            |s| app(s, "Robot", "name").set_type(Type::Bytes),
            "platform.app.v1.Robot 2 name bytes single",
        ),
        (
            "a wrong name",
            |s| app(s, "Robot", "name").name = Some("nam".into()),
            "platform.app.v1.Robot 2 nam string single",
        ),
        (
            "another message",
            |s| app(s, "UpdateRobotResponse", "robot").type_name = Some(".platform.app.v1.RobotPart".into()),
            "platform.app.v1.UpdateRobotResponse 1 robot platform.app.v1.RobotPart single",
        ),
        (
            "presence gained",
            |s| {
                let f = app(s, "Robot", "name");
                f.proto3_optional = Some(true);
            },
            "platform.app.v1.Robot 2 name string optional",
        ),
        (
            "presence lost",
            |s| {
                let f = app(s, "RobotPart", "robot_config_json");
                f.proto3_optional = None;
                f.oneof_index = None;
            },
            "platform.app.v1.RobotPart 18 robot_config_json string single",
        ),
        (
            "one becomes many",
            |s| app(s, "Robot", "name").set_label(Label::Repeated),
            "platform.app.v1.Robot 2 name string repeated",
        ),
        (
            "out of its oneof",
            |s| app(s, "UploadModuleFileRequest", "file").oneof_index = None,
            "platform.app.v1.UploadModuleFileRequest 2 file bytes single",
        ),
        (
            "a map's value",
            |s| message(s, "platform.app.v1", "ModuleConfig").nested_type[0].field[1].set_type(Type::Int32),
            "platform.app.v1.ModuleConfig 6 env map<string,int32> map",
        ),
        (
            "a field too many",
            |s| {
                let copy = app(s, "Robot", "name").clone();
                message(s, "platform.app.v1", "Robot").field.push(FieldDescriptorProto { number: Some(99), ..copy });
            },
            "platform.app.v1.Robot 99 name string single",
        ),
        (
            "a field too few",
            |s| {
                message(s, "platform.app.v1", "Robot").field.pop();
            },
            "only in the tables: platform.app.v1.Robot 7 seconds_since_online int64 single",
        ),
        (
            "a reserved number freed",
            |s| message(s, "platform.app.v1", "FragmentSummary").reserved_range.clear(),
            "only in the tables: platform.app.v1.FragmentSummary 2 is reserved",
        ),
        (
            "a message too many",
            |s| {
                let copy = message(s, "platform.app.v1", "Robot").clone();
                let file = s.file.iter_mut().find(|f| f.package() == "platform.app.v1").unwrap();
                file.message_type.push(DescriptorProto { name: Some("Robo".into()), ..copy });
            },
            "only in proto/: platform.app.v1.Robo 1 id string single",
        ),
        (
            "a nested enum's number",
            |s| message(s, "platform.app.v1", "SharedSecret").enum_type[0].value[1].number = Some(7),
            "platform.app.v1.SharedSecret.State 7 STATE_ENABLED",
        ),
        (
            "an enum's value lost",
            |s| {
                for f in &mut s.file {
                    for e in &mut f.enum_type {
                        if e.name() == "OnlineState" {
                            e.value.pop();
                        }
                    }
                }
            },
            "only in the tables: platform.app.v1.OnlineState 3",
        ),
        (
            "streaming forgotten",
            |s| {
                for f in &mut s.file {
                    for m in f.service.iter_mut().flat_map(|s| &mut s.method) {
                        if m.name() == "TailRobotPartLogs" {
                            m.server_streaming = None;
                        }
                    }
                }
            },
            "TailRobotPartLogs platform.app.v1.TailRobotPartLogsRequest platform.app.v1.TailRobotPartLogsResponse unary",
        ),
        (
            "a method lost",
            |s| {
                for f in &mut s.file {
                    for s in &mut f.service {
                        s.method.retain(|m| m.name() != "NeedsRestart");
                    }
                }
            },
            "only in the tables: platform.app.v1.RobotService NeedsRestart",
        ),
    ];
    for (slip, spoil, expected) in table {
        let mut set = compiled();
        spoil(&mut set);
        let found = differences(&set);
        assert!(
            found.iter().any(|difference| difference.contains(expected)),
            "{slip} went unnoticed; found {found:#?}"
        );
    }
}
