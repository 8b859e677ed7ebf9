//! Text that is shown: what hides in it, and how it is kept in its place.
//!
//! **Invariant:** what [`one_line`] and [`escape`] give is one line without
//! control characters, invisible characters, markup or special tokens, so that
//! no text can end the place where it stands.

/// Characters that show nothing and may hide or reorder text: zero-width and
/// bidirectional controls, variation selectors, tags, soft hyphen.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// What a text holds that a reader does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hidden {
    /// The first control character other than tab and line break, with its line
    /// counted from 1.
    pub(crate) control: Option<(char, u32)>,
    /// The first invisible character that no script or emoji needs there.
    pub(crate) invisible: Option<(char, u32)>,
}

impl Hidden {
    /// Looks through a text with line ends `\n`.
    pub(crate) fn find(text: &str) -> Self {
        let mut hidden = Hidden::default();
        if text.is_ascii() && !text.bytes().any(is_control_byte) {
            return hidden;
        }
        for (at, line) in text.split('\n').enumerate() {
            let number = at as u32 + 1;
            if hidden.control.is_none() && line.bytes().any(|b| is_control_byte(b) || b == 0xc2) {
                let mut controls = line.chars().filter(|&c| c.is_control() && c != '\t');
                hidden.control = controls.next().map(|c| (c, number));
            }
            if hidden.invisible.is_none() && !line.is_ascii() {
                hidden.invisible = first_invisible(line).map(|c| (c, number));
            }
        }
        hidden
    }
}

fn is_control_byte(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t' && byte != b'\n') || byte == 0x7f
}

/// The first invisible character of a line that has no use there.
fn first_invisible(line: &str) -> Option<char> {
    let chars: Vec<char> = line.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == '\u{1f3f4}' {
            at += flag_chars(&chars[at..]);
            continue;
        }
        if is_invisible(chars[at]) && !is_needed(&chars, at) {
            return Some(chars[at]);
        }
        at += 1;
    }
    None
}

/// Length of a flag: a black flag, and the tags of a region where they are well
/// formed (one to six tags and the cancel tag).
fn flag_chars(chars: &[char]) -> usize {
    let is_tag = |c: &&char| matches!(c, '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}');
    let n_tags = chars[1..].iter().take_while(is_tag).count();
    let ends = chars.get(1 + n_tags) == Some(&'\u{e007f}');
    if (1..=6).contains(&n_tags) && ends { n_tags + 2 } else { 1 }
}

/// Whether an invisible character does what it is for: a joiner between two
/// characters of a script or an emoji, one variation selector after a character.
fn is_needed(chars: &[char], at: usize) -> bool {
    let visible = |c: Option<&char>| c.is_some_and(|&c| !is_invisible(c) && !c.is_whitespace());
    let before = at.checked_sub(1).and_then(|before| chars.get(before));
    let after = chars.get(at + 1);
    match chars[at] {
        '\u{fe0e}' | '\u{fe0f}' => visible(before),
        '\u{180b}'..='\u{180f}' => visible(before) && !before.is_some_and(char::is_ascii),
        // An emoji may carry its variation selector before the joiner.
        '\u{200c}' | '\u{200d}' => {
            before.is_some_and(|c| !c.is_ascii() && (!is_invisible(*c) || *c == '\u{fe0f}'))
                && visible(after)
                && !after.is_some_and(char::is_ascii)
        }
        _ => false,
    }
}

/// `text` on one line of at most `chars_max` characters: white space is one
/// blank, control and invisible characters are dropped.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(chars_max));
    let mut n_chars = 0;
    let mut gap = false;
    for c in text.chars() {
        if c.is_whitespace() {
            gap = n_chars > 0;
            continue;
        }
        if c.is_control() || is_invisible(c) {
            continue;
        }
        if n_chars + usize::from(gap) >= chars_max {
            break;
        }
        if std::mem::take(&mut gap) {
            out.push(' ');
            n_chars += 1;
        }
        out.push(c);
        n_chars += 1;
    }
    out
}

/// One line with the characters of markup as entities: no text can close a tag,
/// open one, or spell a special token such as `<|im_end|>`.
pub(crate) fn escape(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 8);
    for c in line.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

/// As [`escape`], and quotation marks: a name may stand in an attribute.
pub(crate) fn escape_name(name: &str) -> String {
    escape(name).replace('"', "&quot;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_characters_are_not_reported() {
        let fine = [
            "plain",
            "\u{1f3f4}\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f} flag",
            "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
            "\u{2764}\u{fe0f}\u{200d}\u{1f525} and 1\u{fe0f}\u{20e3}",
            "\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}",
            "tabs\tand\nlines",
        ];
        for text in fine {
            assert_eq!(Hidden::find(text), Hidden::default(), "{text:?}");
        }
    }

    #[test]
    fn hidden_characters_are_found_with_their_line() {
        let found = |text: &str| Hidden::find(text).invisible;
        assert_eq!(found("a\nb\u{200b}c"), Some(('\u{200b}', 2)));
        assert_eq!(found("safe \u{202e}txet\u{202c}"), Some(('\u{202e}', 1)));
        assert_eq!(found("a\u{200d}b"), Some(('\u{200d}', 1)));
        assert_eq!(found("x\u{e0041}\u{e0042}"), Some(('\u{e0041}', 1)));
        assert_eq!(found("\u{1f3f4}\u{e0041}\u{e0042}"), Some(('\u{e0041}', 1)));
        assert_eq!(found("a\u{fe0f}\u{fe0f}"), Some(('\u{fe0f}', 1)));
        assert_eq!(Hidden::find("a\n\u{1b}[31m").control, Some(('\u{1b}', 2)));
        assert_eq!(Hidden::find("é\u{85}").control, Some(('\u{85}', 1)));
    }

    #[test]
    fn lines_are_cut_and_escaped() {
        assert_eq!(one_line(" a\n\n b\u{200b}\u{7}c ", 99), "a bc");
        assert_eq!(one_line("abc def", 3), "abc");
        assert_eq!(one_line("abc def", 4), "abc");
        assert_eq!(one_line("abc def", 5), "abc d");
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; \"b\"&gt;");
        assert_eq!(escape_name("x\" y='"), "x&quot; y=&apos;");
    }
}
