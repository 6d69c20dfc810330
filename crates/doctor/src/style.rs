//! How text looks on a terminal: colours where they are wanted, and lines that fit. Pure.

/// How text is to look. By default plain, with lines as long as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether there are colours.
    pub colours: bool,
    /// How many columns a line may have; unset means any number.
    pub width: Option<usize>,
}

/// What a colour says. Words say the same: nothing is told by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// All is well.
    Good,
    /// Worth a look.
    Warning,
    /// Broken.
    Bad,
    /// Of little interest.
    Faint,
    /// A heading.
    Heading,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Good => "32",
            Colour::Warning => "33",
            Colour::Bad => "31",
            Colour::Faint => "2",
            Colour::Heading => "1",
        }
    }
}

/// What is folded keeps at least so many columns, however narrow the terminal is.
const NARROWEST: usize = 24;

impl Style {
    /// Text in a colour, where colours are wanted.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if self.colours && !text.trim().is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", colour.code())
        } else {
            text.to_owned()
        }
    }

    /// Text that begins in column `indent`, broken between words so that its lines fit; each further line begins in
    /// the same column. A word that is too long stays whole: it is an address or a name that somebody may copy.
    pub fn fold(self, text: &str, indent: usize) -> String {
        let Some(width) = self.width else {
            return text.to_owned();
        };
        let room = width.saturating_sub(indent).max(NARROWEST);
        let mut folded = String::new();
        let mut column = 0;
        for word in text.split(' ') {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > room {
                folded.push('\n');
                folded.push_str(&" ".repeat(indent));
                column = 0;
            } else if column > 0 {
                folded.push(' ');
                column += 1;
            }
            folded.push_str(word);
            column += length;
        }
        folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Style = Style {
        colours: false,
        width: Some(30),
    };

    #[test]
    fn lines_are_broken_between_words_and_begin_in_their_column() {
        let folded = NARROW.fold("one two three four five six seven", 4);
        assert_eq!(folded, "one two three four five\n    six seven");
        assert!(folded.lines().all(|line| line.chars().count() <= 30), "{folded}");
    }

    #[test]
    fn without_a_width_and_in_a_word_nothing_is_broken() {
        let long = "a".repeat(99);
        assert_eq!(NARROW.fold(&long, 4), long);
        assert_eq!(
            Style::default().fold("one two three four five six seven", 4),
            "one two three four five six seven"
        );
    }

    #[test]
    fn colours_are_there_only_where_they_are_wanted() {
        assert_eq!(NARROW.paint(Colour::Bad, "FAIL"), "FAIL");
        let coloured = Style {
            colours: true,
            ..NARROW
        };
        assert_eq!(coloured.paint(Colour::Bad, "FAIL"), "\x1b[31mFAIL\x1b[0m");
        assert_eq!(coloured.paint(Colour::Bad, "  "), "  ");
    }
}
