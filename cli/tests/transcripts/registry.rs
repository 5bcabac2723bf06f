//! Fragments, modules and what else there is to share.

use super::*;

#[test]
fn fragments() {
    let desk = Desk::new();
    desk.file("f.json", r#"{"agent": {"minutes": 10, "ratio": 0.5, "none": null, "list": [1]}}"#);
    desk.shows(
        "fragment create base f.json",
        "name          base\n\
         id            0a000000-0000-4000-8000-000000000003\n\
         revision      1\n\
         last updated  2023-11-14T22:13:20.500Z\n\
         {\n  \"agent\": {\n    \"list\": [\n      1\n    ],\n    \"minutes\": 10,\n    \"none\": null,\n    \"ratio\": 0.5\n  }\n}\n",
    );
    desk.fails("fragment get other", 1, "there is no fragment \"other\"; there are:\n  base");
    desk.fails("fragment update base", 2, "nothing to change");
    assert_eq!(desk.run("fragment get base -o json").exit, 0);
}

#[test]
fn modules() {
    let desk = Desk::new();
    desk.shows("module list", "There is no module yet; make one with `module create NAME`.\n");
    let id = format!("{ORGANIZATION}:camera");
    desk.shows(
        "module create camera",
        &format!("id   {id}\nurl  https://fleet.example.com/packages/v1/{ORGANIZATION}/camera\n"),
    );
    let meta = r#"{"description": "takes pictures", "entrypoint": "bin/run", "visibility": "public",
        "models": [{"api": "a:b:c", "model": "acme:camera:usb"}], "applications": [
        {"name": "board", "type": "multi_machine", "entrypoint": "index.html"}]}"#;
    desk.file("meta.json", meta);
    desk.file("readme.md", "# Camera");
    let shown = "id           ID\nvisibility   unlisted\ndescription  takes pictures\nurl\nentrypoint   bin/new\n\
                 models       acme:camera:usb\napps         board\nmachines     0\n";
    let line = "module update camera --meta meta.json --readme readme.md --visibility unlisted --entrypoint bin/new";
    desk.shows(line, &shown.replace("ID", &id));
    // What is not given stays.
    let shown = shown.replace("ID", &id).replace("\nurl\n", "\nurl          https://example.org\n");
    desk.shows(&format!("module update {id} --url https://example.org"), &shown);
    {
        let state = desk.fleet.state();
        let module = &state.registry.modules[0];
        assert_eq!((module.markdown_description.as_deref(), module.apps.len()), (Some("# Camera"), 1));
    }
    desk.fails("module update camera --meta readme.md", 1, "this describes no module");

    desk.file("module.tar.gz", &"x".repeat(100_000));
    let digest = "d69e68988157833272305aaf21f453c800346e8a3640db6578e260215542e5d4";
    let uploaded =
        desk.run("module upload camera module.tar.gz --version 1.2.3 --platform linux/arm64 --tag distro:debian");
    assert_eq!((uploaded.exit, &*uploaded.err), (0, ""), "no bar where nobody looks");
    let sentence = format!("{id} 1.2.3 for linux/arm64 is uploaded: 100000 bytes, sha256 {digest}.\n");
    assert_eq!(uploaded.out, sentence + "https://fleet.example.com/packages/v1/there\n");
    {
        let state = desk.fleet.state();
        let (info, bytes) = state.registry.uploaded.as_ref().unwrap();
        assert_eq!(
            (&*info.version, &info.platform_tags[..], bytes.len()),
            ("1.2.3", &["distro:debian".to_owned()][..], 100_000)
        );
    }
    let table = desk.run("module list");
    let row = format!("{id}  unlisted    1.2.3   0         takes pictures\n");
    assert!(table.out.ends_with(&row), "{}", table.out);
    assert!(
        desk.run("module get camera")
            .out
            .ends_with("VERSION  PLATFORM     UPLOADED\n1.2.3    linux/arm64  2023-11-14T22:13:20.500Z\n")
    );
    let found = desk.run("module file camera --platform linux/arm64 -o json");
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((&found["info"]["version"], &found["info"]["files"][0]["size"]), (&"1.2.3".into(), &100_000.into()));
    // The server says that it keeps something else.
    desk.fleet.state().registry.loses_bytes = true;
    desk.fails("module upload camera module.tar.gz --version 1.2.4 --platform any", 1, "the server keeps ");
    desk.fails("module upload camera none.tar.gz --version 1.2.4 --platform any", 1, "none.tar.gz");
    desk.fails("module upload other module.tar.gz --version 1.2.4 --platform any", 1, "no such module");
    desk.shows("module delete camera", &format!("The module {id} is deleted.\n"));
}

#[test]
fn registry_and_applications() {
    let desk = Desk::new();
    desk.shows("registry list", "There is no registry item that you may see.\n");
    let id = format!("{ORGANIZATION}:detector");
    let shown = desk.run("registry create detector --kind model");
    assert!(
        shown.out.starts_with(&format!("id           {id}\nkind         model\nvisibility   private\n")),
        "{}",
        shown.out
    );
    desk.fails("registry update detector", 2, "nothing to change");
    let shown = desk.run("registry update detector --visibility public --description finds␠screws");
    assert!(shown.out.contains("visibility   public\ndescription  finds screws\n"), "{} {}", shown.out, shown.err);
    let listed = desk.run("registry list --own --kind model --search screws");
    assert!(listed.out.contains(&format!("{id}  model  public      0         0         ")), "{}", listed.out);
    let listed: serde_json::Value = serde_json::from_str(&desk.run("registry list -o json").out).unwrap();
    assert_eq!(listed[0]["item_id"], id);
    desk.fails("registry create x --kind soup", 2, "invalid value 'soup'");
    desk.shows("registry delete detector -o json", &format!("{{\n  \"id\": \"{id}\"\n}}\n"));

    desk.shows(
        "app content acme board",
        "content     /packages/v1/acme/camera/1.0.0/any\nentrypoint  index.html\nkind        for several machines\npublic      no\n",
    );
    desk.shows(
        "app branding acme board",
        "logo       logo.png\ntexts      machinePicker.heading: Choose\nfragments  f\nfor        o\n",
    );
}
