//! Changing notebooks cell by cell.

use std::fs;

use outlast::tools::{PermissionMode, ToolOutcome};
use serde_json::{Value, json};

use super::bench::{Bench, assert_fails_with, text};

/// As Jupyter writes it, but for a number and a half of a pair that other programs write.
const NOTEBOOK: &str = r#"{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "m1",
   "metadata": {},
   "source": [
    "Title"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 7,
   "id": "c1",
   "metadata": {"x": 1.50, "half": "\ud83d"},
   "outputs": [
    {"text": "old"}
   ],
   "source": [
    "import os\n",
    "x = 1"
   ]
  }
 ],
 "metadata": {"n": 12345678901234567890123},
 "nbformat": 4,
 "nbformat_minor": 5
}
"#;

async fn edit(bench: &Bench, input: &Value) -> ToolOutcome {
    let mut input = input.clone();
    if input["file_path"].is_null() {
        input["notebook_path"] = json!("n.ipynb");
    }
    bench.run("NotebookEdit", input).await
}

async fn known(content: &str) -> Bench {
    let bench = Bench::open();
    bench.file("n.ipynb", content);
    assert!(!bench.read("n.ipynb").await.is_error);
    bench
}

#[tokio::test]
async fn one_cell_changes_and_no_byte_beside_it() {
    let code = |source: &str| {
        let lines = r#""import os\n",
    "x = 1""#;
        let outputs = r#"[
    {"text": "old"}
   ]"#;
        NOTEBOOK.replace(lines, source).replace(outputs, "[]").replace(": 7,", ": null,")
    };
    let as_code = NOTEBOOK.replacen("markdown", "code", 1).replace(
        "\"Title\"\n   ]\n",
        "\"y = 2\"\n   ],\n   \"outputs\": [],\n   \"execution_count\": null\n",
    );
    let table = [
        (
            json!({ "cell_id": "c1", "new_source": "a\n\"b\"" }),
            code("\"a\\n\",\n    \"\\\"b\\\"\""),
        ),
        (json!({ "cell_id": "m1", "new_source": "Name" }), NOTEBOOK.replace("Title", "Name")),
        (json!({ "cell_id": "m1", "new_source": "y = 2", "cell_type": "code" }), as_code),
        // By other names, and by the number of the cell.
        (
            json!({ "file_path": "n.ipynb", "cell_number": 0, "source": "Name" }),
            NOTEBOOK.replace("Title", "Name"),
        ),
        (
            json!({ "notebook_path": "n.ipynb", "cell_number": "0", "new_source": "Name" }),
            NOTEBOOK.replace("Title", "Name"),
        ),
        (json!({ "cell_id": "cell-0", "new_source": "Name" }), NOTEBOOK.replace("Title", "Name")),
    ];
    for (input, expected) in table {
        let bench = known(NOTEBOOK).await;
        let outcome = edit(&bench, &input).await;
        assert!(!outcome.is_error, "{outcome:?}");
        assert_eq!(bench.content("n.ipynb"), expected, "{input}");
    }
}

#[tokio::test]
async fn cells_are_inserted_and_deleted() {
    let bench = known(NOTEBOOK).await;
    let new = json!({ "cell_id": "m1", "new_source": "new", "cell_type": "code",
        "edit_mode": "insert" });
    let outcome = edit(&bench, &new).await;
    assert!(text(&outcome).starts_with("Inserted cell 2 (id "), "{}", text(&outcome));
    let id = outcome.detail["cell_id"].as_str().expect("an id").to_owned();
    let cell = format!(
        ",\n  {{\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"{id}\",\n   \
         \"metadata\": {{}},\n   \"outputs\": [],\n   \"source\": [\n    \"new\"\n   ]\n  }}"
    );
    let first = "\"Title\"\n   ]\n  }";
    let expected = NOTEBOOK.replace(first, &format!("{first}{cell}"));
    assert_eq!(bench.content("n.ipynb"), expected);
    let first = json!({ "new_source": "top", "cell_type": "markdown", "edit_mode": "insert" });
    assert!(!edit(&bench, &first).await.is_error);
    let shown = text(&bench.read("n.ipynb").await);
    assert!(shown.starts_with("[cell 1: markdown, id "), "{shown}");
    let delete = |id: &str| json!({ "cell_id": id, "edit_mode": "delete" });
    let top = shown.lines().next().and_then(|line| line.split("id ").nth(1)).expect("an id");
    assert!(!edit(&bench, &delete(top.trim_end_matches(']'))).await.is_error);
    assert!(!edit(&bench, &delete(&id)).await.is_error);
    assert_eq!(bench.content("n.ipynb"), NOTEBOOK);
    for id in ["m1", "c1"] {
        assert!(!edit(&bench, &delete(id)).await.is_error);
    }
    assert!(bench.content("n.ipynb").starts_with("{\n \"cells\": [],\n"));
    assert!(!edit(&bench, &first).await.is_error);
    let made = bench.content("n.ipynb");
    let begin = "{\n \"cells\": [\n  {\n   \"cell_type\": \"markdown\",\n   \"id\": ";
    assert!(made.starts_with(begin), "{made}");
    assert!(made.contains("\n   \"source\": [\n    \"top\"\n   ]\n  }\n ],\n"), "{made}");
}

#[tokio::test]
async fn old_and_compact_notebooks_can_be_changed() {
    let compact = json!({ "cells": [
        { "cell_type": "code", "source": "a", "outputs": [], "execution_count": 1 },
    ], "nbformat": 4, "nbformat_minor": 4 });
    let bench = known(&compact.to_string()).await;
    let outcome = edit(&bench, &json!({ "cell_id": "cell-0", "new_source": "b\nc" })).await;
    assert!(!outcome.is_error, "{outcome:?}");
    let new = json!({ "cell_id": "cell-0", "new_source": "d", "cell_type": "markdown",
        "edit_mode": "insert" });
    assert!(!edit(&bench, &new).await.is_error);
    let made: Value = serde_json::from_str(&bench.content("n.ipynb")).expect("JSON");
    let expected = json!({ "cells": [
        { "cell_type": "code", "source": "b\nc", "outputs": [], "execution_count": null },
        { "cell_type": "markdown", "metadata": {}, "source": ["d"] },
    ], "nbformat": 4, "nbformat_minor": 4 });
    assert_eq!(made, expected);
}

#[tokio::test]
async fn a_notebook_whose_ids_are_positions_is_read_again_after_cells_have_moved() {
    let cell = |source: &str| json!({ "cell_type": "markdown", "source": source });
    let cells = json!({ "cells": [cell("a"), cell("b")], "nbformat": 4, "nbformat_minor": 4 });
    let bench = known(&cells.to_string()).await;
    let insert = |after: &str| {
        json!({ "cell_id": after, "new_source": "c", "cell_type": "code",
        "edit_mode": "insert" })
    };
    let at_end = edit(&bench, &insert("cell-1")).await;
    assert!(text(&at_end).contains("(id cell-2)"), "{at_end:?}");
    let before_others = edit(&bench, &insert("cell-0")).await;
    assert!(text(&before_others).contains("Read the notebook"), "{before_others:?}");
    let replace = json!({ "cell_id": "cell-1", "new_source": "B" });
    assert_fails_with(&edit(&bench, &replace).await, "Read it first");
    bench.read("n.ipynb").await;
    assert!(!edit(&bench, &replace).await.is_error);
    let last = json!({ "cell_id": "cell-3", "edit_mode": "delete" });
    assert!(!edit(&bench, &last).await.is_error);
    assert!(!edit(&bench, &replace).await.is_error, "none has moved");
}

#[tokio::test]
async fn what_cannot_be_changed_is_explained() {
    let bench = known(NOTEBOOK).await;
    for (input, why) in [
        (
            json!({ "cell_id": "zz", "new_source": "x" }),
            "no cell with the id \"zz\"; there are m1, c1",
        ),
        // It may be the id of a cell that was deleted.
        (json!({ "cell_id": "0", "new_source": "x" }), "no cell with the id \"0\""),
        (json!({ "new_source": "x" }), "cell_id is missing"),
        (json!({ "cell_id": "c1" }), "new_source is missing"),
        (json!({ "new_source": "x", "edit_mode": "insert" }), "cell_type is missing"),
    ] {
        assert_fails_with(&edit(&bench, &input).await, why);
    }
    let by_text = json!({ "file_path": "n.ipynb", "old_string": "import os\nx", "new_string": "" });
    assert_fails_with(&bench.run("Edit", by_text).await, "with NotebookEdit");
    fs::write(bench.cwd.join("n.ipynb"), "{}").unwrap();
    let input = json!({ "cell_id": "c1", "new_source": "x" });
    assert_fails_with(&edit(&bench, &input).await, "changed since");
    bench.read("n.ipynb").await;
    assert_fails_with(&edit(&bench, &input).await, "not a notebook");
    let other = json!({ "notebook_path": "a.py", "cell_id": "c1", "new_source": "x" });
    assert_fails_with(&bench.run("NotebookEdit", other).await, "use Edit");
}

#[tokio::test]
async fn a_notebook_is_changed_under_the_rules_of_edit() {
    let input = json!({ "notebook_path": "n.ipynb", "cell_id": "m1", "new_source": "x" });
    for (rule, mode, may) in [
        ("", PermissionMode::Default, false),
        ("", PermissionMode::AcceptEdits, true),
        ("Edit", PermissionMode::Default, true),
        ("Edit(*.ipynb)", PermissionMode::Default, true),
        ("NotebookEdit", PermissionMode::Default, true),
        ("Write", PermissionMode::Default, false),
    ] {
        for denied in [false, true] {
            let bench = Bench::with(|settings| {
                settings.permissions.mode = mode;
                settings.permissions.allow.extend((!rule.is_empty()).then(|| rule.to_owned()));
                settings.permissions.deny.extend(denied.then(|| "Read(secret/**)".to_owned()));
                settings.permissions.deny.extend(denied.then(|| "Edit(n.ipynb)".to_owned()));
            });
            bench.file("n.ipynb", NOTEBOOK);
            bench.read("n.ipynb").await;
            let outcome = bench.run("NotebookEdit", input.clone()).await;
            assert_eq!(outcome.is_error, !may || denied, "{rule} {mode:?}: {outcome:?}");
        }
    }
}
