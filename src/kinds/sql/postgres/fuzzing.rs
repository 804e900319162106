//! What the fuzz targets need of this folder.

use serde_json::Value;

use super::decode::{Shape, decode_value};

/// A value of a built-in type, or of arrays of it, as a server sends it. `None` if the bytes are
/// refused.
pub fn decode(number: u32, is_array: bool, bytes: &[u8]) -> Option<Value> {
    let shape = Shape::for_number(number)?;
    let shape = match is_array {
        true => Shape::Array(Box::new(shape)),
        false => shape,
    };
    decode_value(bytes, &shape, &mut || {}).ok()
}
