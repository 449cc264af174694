//! A stream's bytes make the same events however they are cut.

use outlast::sse::{SseEvent, SseParser};

fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent> {
    let (mut frames, mut ready) = (SseParser::default(), Vec::new());
    for piece in pieces {
        frames.push(piece, &mut ready).expect("no input is as large as the limit");
    }
    ready
}

pub fn run(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = frames([bytes]);
    assert_eq!(frames(bytes.chunks(usize::from(*size).max(1))), whole);
    assert_eq!(frames(bytes.chunks(1)), whole);
    // What a cut takes away is at the end, and what came before is told as it was.
    let half = frames([&bytes[..bytes.len() / 2]]);
    assert!(whole.starts_with(&half));
    let fields: usize = whole.iter().map(|frame| frame.event.len() + frame.data.len()).sum();
    // A byte that is no UTF-8 becomes three.
    assert!(fields <= bytes.len() * 3);
}
