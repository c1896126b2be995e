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
pub fn close(out: &mut Vec<u8>, id: Option<impl std::fmt::Display>) {
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

/// A frame without its id and without its end.
pub fn body(frame: &[u8]) -> &[u8] {
    let frame = frame.strip_suffix(b"\r\n\r\n").unwrap_or(frame);
    // Data is one line, so that the last line is the id, if there is one.
    let line = frame.windows(2).rposition(|two| two == b"\r\n");
    match line.filter(|at| frame[*at..].starts_with(b"\r\nid: ")) {
        Some(at) => &frame[..at],
        None => frame,
    }
}

/// The name of the event, its namespace and its data, of a frame without its id and its end.
pub fn parts(body: &[u8]) -> (&str, &str, &[u8]) {
    let line = body.windows(2).position(|two| two == b"\r\n");
    let (name, data) = body.split_at(line.unwrap_or(body.len()));
    let name = name.strip_prefix(b"event: ").unwrap_or(name);
    // Names are texts of this program and of the graph.
    let name = std::str::from_utf8(name).unwrap_or_default();
    let (event, ns) = name.split_once('|').unwrap_or((name, ""));
    (event, ns, data.strip_prefix(b"\r\ndata: ").unwrap_or(data))
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
        close(&mut out, None::<u64>);
        open(&mut out, "values", "child:1|grand:2");
        out.extend_from_slice(b"{}");
        close(&mut out, Some(12));
        let expected = "event: values\r\ndata: {\"a\":1}\r\n\r\n\
                        event: values|child:1|grand:2\r\ndata: {}\r\nid: 12\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_frame_is_taken_apart_with_and_without_an_id() {
        for id in [None, Some(12)] {
            let mut out = vec![];
            open(&mut out, "values", "child:1|grand:2");
            out.extend_from_slice(b"{\"a\":\"\\r\\nid: 1\"}");
            close(&mut out, id);
            let data: &[u8] = b"{\"a\":\"\\r\\nid: 1\"}";
            assert_eq!(parts(body(&out)), ("values", "child:1|grand:2", data));
        }
    }

    #[test]
    fn a_line_break_in_a_node_name_cannot_start_a_line() {
        let mut out = vec![];
        open(&mut out, "updates", "a\r\ndata: x:1");
        assert_eq!(out, b"event: updates|a  data: x:1\r\ndata: ");
    }
}
