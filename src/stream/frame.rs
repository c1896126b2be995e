//! The bytes of one server-sent event: lines in the order `event`, `data`, `id`, ended by CRLF.

use std::io::Write;

/// Opens a frame; its data follows, one line of compact JSON.
///
/// A namespace follows the event's name as `|outer|inner`.
pub fn open(out: &mut Vec<u8>, event: &str, ns: &str) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    if !ns.is_empty() {
        out.push(b'|');
        // Node names are free text, and a line break would end the line.
        let line = ns.bytes().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        });
        out.extend(line);
    }
    out.extend_from_slice(b"\r\ndata: ");
}

/// Closes a frame, with an id if the stream can be resumed.
pub fn close(out: &mut Vec<u8>, id: Option<u64>) {
    if let Some(id) = id {
        // Writing to memory cannot fail.
        let _ = write!(out, "\r\nid: {id}");
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// A whole frame: one event with its data, one line of compact JSON.
pub fn write_frame(out: &mut Vec<u8>, event: &str, data: &[u8], id: Option<u64>) {
    open(out, event, "");
    out.extend_from_slice(data);
    close(out, id);
}

/// A JSON text.
pub fn text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory cannot fail, and every text is JSON.
    let result = serde_json::to_writer(out, text);
    debug_assert!(result.is_ok(), "a text is always JSON");
}

/// A JSON text of something whose shown form needs no escapes, such as an id.
pub fn plain(out: &mut Vec<u8>, shown: impl std::fmt::Display) {
    let _ = write!(out, "\"{shown}\"");
}

/// A JSON number.
pub fn number(out: &mut Vec<u8>, number: i64) {
    let _ = write!(out, "{number}");
}

/// A JSON list of what `each` writes for the items.
pub fn list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        each(out, item);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_event_data_and_id_lines_ended_by_crlf() {
        let mut out = vec![];
        open(&mut out, "values", "");
        out.extend_from_slice(b"{\"a\":1}");
        close(&mut out, None);
        open(&mut out, "values", "child:1|grand:2");
        out.extend_from_slice(b"{}");
        close(&mut out, Some(12));
        let expected = "event: values\r\ndata: {\"a\":1}\r\n\r\n\
                        event: values|child:1|grand:2\r\ndata: {}\r\nid: 12\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_line_break_in_a_node_name_cannot_start_a_line() {
        let mut out = vec![];
        open(&mut out, "updates", "a\r\ndata: x:1");
        assert_eq!(out, b"event: updates|a  data: x:1\r\ndata: ");
    }
}
