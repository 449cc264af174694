//! The keys of scenario files, made of their JSON Schema.

use serde_json::Value;

use super::tables::{code, prose, rows_of};

/// One table for each table of a file.
pub(super) fn tables(schema: &Value) -> String {
    let mut manual = KeyManual { schema, described: Vec::new(), tables: Vec::new() };
    manual.describe("the file", "", schema);
    manual.tables.join("\n")
}

struct KeyManual<'a> {
    schema: &'a Value,
    /// Tables that were described already: each is described only at its first place in a file.
    described: Vec<&'a Value>,
    tables: Vec<String>,
}

impl<'a> KeyManual<'a> {
    fn describe(&mut self, heading: &str, path: &str, table: &'a Value) {
        if !self.is_new(table) {
            return;
        }
        let properties = table["properties"].as_object().expect("it is a table");
        let required = table["required"].as_array().map_or(&[][..], Vec::as_slice);
        let row = |(name, property): (&String, &'a Value)| {
            let mut meaning = description(property);
            if required.iter().any(|required| required == name) {
                meaning.push_str(" Required.");
            }
            meaning.push_str(&self.choices(property));
            vec![code(name), prose(&self.takes(property)), prose(&meaning)]
        };
        let rows: Vec<_> = properties.iter().map(row).collect();
        let rows = rows_of(&["key", "Takes", "meaning"], rows);
        self.tables.push(format!("### {heading}\n\n{}\n\n{rows}", prose(&description(table))));
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let value = self.resolved(property);
            let (list, named) =
                (self.resolved(&value["items"]), self.resolved(&value["additionalProperties"]));
            if is_table(value) {
                self.describe(&code(&format!("[{path}]")), &path, value);
            } else if is_table(list) {
                self.describe(&code(&format!("[[{path}]]")), &path, list);
            } else if is_table(named) {
                let path = format!("{path}.NAME");
                self.describe(&code(&format!("[{path}]")), &path, named);
            }
        }
    }

    fn is_new(&mut self, schema: &'a Value) -> bool {
        let is_new = !self.described.iter().any(|described| std::ptr::eq(*described, schema));
        if is_new {
            self.described.push(schema);
        }
        is_new
    }

    /// The schema that a reference refers to, without null.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let options = schema["anyOf"].as_array().into_iter().flatten();
        let schema = options.into_iter().find(|it| it["type"] != "null").unwrap_or(schema);
        match schema["$ref"].as_str() {
            Some(place) => self.schema.pointer(place.trim_start_matches('#')).expect("it exists"),
            None => schema,
        }
    }

    /// The values of a key.
    fn takes(&self, property: &'a Value) -> String {
        let schema = self.resolved(property);
        let kind = schema["type"].as_str().or(schema["type"][0].as_str());
        let takes = match kind {
            Some("string") if schema["format"] == "duration" => "a time, as in `\"1m 30s\"`",
            Some("string") => "text",
            Some("boolean") => "true or false",
            Some("integer") => return whole_number(schema),
            Some("number") => "a number above 0",
            Some("array") if is_table(self.resolved(&schema["items"])) => "a list of tables",
            Some("array") => "a list of texts",
            Some("object") if is_table(schema) => "a table",
            Some("object") if is_table(self.resolved(&schema["additionalProperties"])) => {
                "a table of tables"
            }
            Some("object") => "a table of texts",
            None if choices(schema).any(is_table) => {
                "one of the listed texts, or a table with one key"
            }
            None if choices(schema).next().is_some() => "one of the listed texts",
            None => "any value",
            Some(other) => panic!("{other}: {property}"),
        };
        takes.to_owned()
    }

    /// The texts that a key may have, each with its meaning.
    fn choices(&mut self, property: &'a Value) -> String {
        let schema = self.resolved(property);
        if choices(schema).next().is_none() || !self.is_new(schema) {
            return String::new();
        }
        let choice = |choice: &Value| {
            let value = match choice["const"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("{{ {} = N }}", choice["required"][0].as_str().expect("a key")),
            };
            format!(" `{value}`: {}", description(choice))
        };
        choices(schema).map(choice).collect()
    }
}

fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    schema["oneOf"].as_array().into_iter().flatten()
}

fn is_table(schema: &Value) -> bool {
    schema.get("properties").is_some()
}

fn whole_number(schema: &Value) -> String {
    match (&schema["minimum"], schema["maximum"].as_i64()) {
        (least, None) => format!("a whole number from {least}"),
        (least, Some(most)) => format!("a whole number from {least} to {most}"),
    }
}

fn description(schema: &Value) -> String {
    let text = schema["description"].as_str();
    text.unwrap_or_else(|| panic!("without a description: {schema}")).replace('\n', " ")
}
