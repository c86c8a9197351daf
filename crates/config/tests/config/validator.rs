//! Validates values by the words of JSON schemas that the schema for editors has.
//!
//! A crate for that would change the features of crates that the program shares with it. A test of
//! the lab validates examples and wrong files with another validator.

use serde_json::Value;

/// Returns whether a value has the form that a schema requires.
pub(crate) fn is_valid(value: &Value, schema: &Value) -> bool {
    let Value::Object(rules) = schema else {
        return schema == &Value::Bool(true);
    };
    let all = |list: &Value, of: &dyn Fn(&Value) -> bool| {
        list.as_array().is_some_and(|list| list.iter().all(of))
    };
    rules.iter().all(|(rule, of)| match (rule.as_str(), value) {
        ("type", _) => match of {
            Value::Array(names) => names.iter().any(|name| is_of(value, name)),
            name => is_of(value, name),
        },
        ("enum", _) => of.as_array().is_some_and(|list| list.contains(value)),
        ("const", _) => of == value,
        ("minimum", Value::Number(_)) => value.as_f64() >= of.as_f64(),
        ("maximum", Value::Number(_)) => value.as_f64() <= of.as_f64(),
        ("minLength", Value::String(text)) => {
            text.chars().count() as u64 >= of.as_u64().unwrap_or(0)
        }
        ("required", Value::Object(table)) => all(of, &|key| {
            table.contains_key(key.as_str().unwrap_or_default())
        }),
        ("properties", Value::Object(table)) => table
            .iter()
            .all(|(key, value)| of.get(key).is_none_or(|of| is_valid(value, of))),
        ("additionalProperties", Value::Object(table)) => {
            let is_known = |key: &str| schema["properties"].get(key).is_some();
            table
                .iter()
                .all(|(key, value)| is_known(key) || is_valid(value, of))
        }
        ("items", Value::Array(values)) => values.iter().all(|value| is_valid(value, of)),
        ("allOf", _) => all(of, &|one| is_valid(value, one)),
        ("anyOf", _) => of
            .as_array()
            .is_some_and(|list| list.iter().any(|one| is_valid(value, one))),
        ("not", _) => !is_valid(value, of),
        ("if", _) => !is_valid(value, of) || is_valid(value, &schema["then"]),
        ("then" | "default" | "description" | "$schema" | "title", _) => true,
        (
            "minimum"
            | "maximum"
            | "minLength"
            | "required"
            | "properties"
            | "additionalProperties"
            | "items",
            _,
        ) => true,
        _ => panic!("{rule} is unknown"),
    })
}

/// Returns whether a value is of a type.
fn is_of(value: &Value, name: &Value) -> bool {
    match value {
        Value::Object(_) => name == "object",
        Value::Array(_) => name == "array",
        Value::String(_) => name == "string",
        Value::Bool(_) => name == "boolean",
        Value::Number(number) => name == "integer" && !number.is_f64(),
        Value::Null => false,
    }
}
