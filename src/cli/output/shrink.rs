//! Shortens messages to the size limit of their readers.

use serde_json::Value;

/// Cuts the longest texts in `value` in the middle until it is at most `max` bytes of JSON.
pub fn shrink(mut value: Value, max: usize) -> Value {
    let mut longest = max / 2;
    while longest > 16 && value.to_string().len() > max {
        cut(&mut value, longest);
        longest /= 2;
    }
    value
}

fn cut(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if text.len() > longest => {
            let left_out = text.len() - longest;
            let head = text.floor_char_boundary(longest / 2);
            let tail = text.ceil_char_boundary(text.len() - longest / 2);
            *text = format!("{}\n[{left_out} bytes left out]\n{}", &text[..head], &text[tail..]);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut(item, longest)),
        Value::Object(map) => map.values_mut().for_each(|item| cut(item, longest)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
