//! Whatever EC2 answers: no panic, and what is cut off anywhere is never read as a shorter answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oooi_cloud::aws::testing::read;

fuzz_target!(|input: (u16, &str)| {
    let (place, text) = input;
    let whole = read(text);
    if whole == read("") {
        return; // it is no answer
    }
    let cut = &text[..text.floor_char_boundary(usize::from(place) % text.len())];
    let cut_off = read(cut);
    assert!(cut_off == read("") || cut_off == whole, "{cut:?} of {text:?}");
});
