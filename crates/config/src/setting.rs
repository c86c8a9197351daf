//! Declares the keys of the file: name, type, limits, default, protocols and documentation of each
//! stand in one place.
//!
//! [`settings!`] makes a structure of the plan whose fields are keys, and the function that reads
//! them. [`keys!`] lists keys that functions of their own read. [`words!`] makes an enum whose
//! variants are words of the file.

use crate::problem::Problems;
use crate::reader::Table;

/// Table of the file.
#[derive(Debug)]
pub struct Section {
    /// Title as written in the file: `[service.health]`, `[[service]]`.
    pub title: &'static str,
    /// Groups of keys, in the order of the documentation.
    pub groups: &'static [&'static [Key]],
    /// All tables, for the place of a key that this one does not have.
    pub(crate) all: &'static [&'static Section],
}

impl Section {
    /// Returns the keys, in the order of the documentation.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + Clone {
        self.groups.iter().copied().flatten()
    }

    /// Returns the key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}

/// Key of a table.
#[derive(Debug)]
pub struct Key {
    /// Name, which ends with the unit.
    pub name: &'static str,
    /// Permitted values.
    pub kind: Kind,
    /// Value of a file without the key.
    pub absent: Absent,
    /// Lines of the documentation.
    pub doc: &'static [&'static str],
    /// Protocols of services that have the key. Empty: all.
    pub protocols: &'static [&'static str],
}

/// Meaning of a file without a key.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// An error.
    Required,
    /// The documentation of the key describes it.
    Described,
    /// The key has this value, as in a file.
    Default(fn() -> String),
}

/// Permitted values of a key.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Integer within these bounds, inclusive.
    Number(u64, u64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// String, whose limits are described.
    Text(&'static str),
    /// String or array of strings, whose limits are described.
    Texts(&'static str),
    /// Array of these words, or one of them.
    Words(&'static [&'static str]),
    /// One of these words, or an array of strings, which is described.
    WordOrTexts(&'static [&'static str], &'static str),
    /// Number, string or array of them, whose limits are described.
    Codes(&'static str),
    /// Array of strings or tables, or one of them. The limits are described.
    Entries(&'static str, &'static Section),
    /// String or table. The limits are described.
    Entry(&'static str, &'static Section),
    /// Table with any names, whose limits are described.
    Names(&'static str),
    /// Table.
    Table(&'static Section),
    /// Array of tables.
    Tables(&'static Section),
    /// Tables with any names.
    NamedTables(&'static Section),
}

impl Kind {
    /// Returns the permitted words. None for kinds without words.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Kind::Word(words) | Kind::Words(words) | Kind::WordOrTexts(words, _) => words,
            _ => &[],
        }
    }
}

pub(crate) const fn number(min: u64, max: u64) -> Kind {
    Kind::Number(min, max)
}

/// Maximum of most waits: a longer one is more likely a mistake in the unit.
pub(crate) const DAY_MS: u64 = 86_400_000;
pub(crate) const HOUR_MS: u64 = 3_600_000;
pub(crate) const TEN_MINUTES_MS: u64 = 600_000;
/// Maximum of session times: sessions of database pools may be idle for days.
pub(crate) const WEEK_MS: u64 = 7 * DAY_MS;

/// Type of a setting.
pub(crate) trait Setting: Sized {
    /// Values that a file may have.
    const KIND: Kind;

    /// Returns the value of a key. `None` if the table does not have it, or a wrong one, which is
    /// reported.
    fn read(table: &Table<'_>, key: &str, problems: &mut Problems) -> Option<Self>;

    /// Returns the value as written in a file. Empty if a file cannot have it.
    fn written(&self) -> String;
}

/// Settings of a table.
pub(crate) trait Settings: Default {
    /// Sets those that the table has.
    fn read(&mut self, table: &Table<'_>, problems: &mut Problems);

    /// Returns the settings of a table.
    fn of(table: &Table<'_>, problems: &mut Problems) -> Self {
        let mut settings = Self::default();
        settings.read(table, problems);
        settings
    }
}

/// Implements [`Setting`] for types of integers.
macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Setting for $integer {
            const KIND: Kind = Kind::Number(0, <$integer>::MAX as u64);

            fn read(table: &Table<'_>, key: &str, problems: &mut Problems) -> Option<$integer> {
                table.number(key, problems)?.try_into().ok()
            }

            fn written(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

integers!(u16, u32, u64, usize);

impl Setting for bool {
    const KIND: Kind = Kind::Flag;

    fn read(table: &Table<'_>, key: &str, problems: &mut Problems) -> Option<bool> {
        table.flag(key, problems)
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

impl Setting for String {
    const KIND: Kind = Kind::Text("text");

    fn read(table: &Table<'_>, key: &str, problems: &mut Problems) -> Option<String> {
        table.text(key, problems).map(str::to_owned)
    }

    fn written(&self) -> String {
        format!("\"{self}\"")
    }
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = T::KIND;

    fn read(table: &Table<'_>, key: &str, problems: &mut Problems) -> Option<Option<T>> {
        T::read(table, key, problems).map(Some)
    }

    fn written(&self) -> String {
        self.as_ref().map_or(String::new(), T::written)
    }
}

/// Makes an enum whose variants are words of the file.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Returns the word in the file.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl $crate::setting::Setting for $name {
            const KIND: $crate::setting::Kind =
                $crate::setting::Kind::Word(&[$($word),*]);

            fn read(
                table: &$crate::reader::Table<'_>,
                key: &str,
                problems: &mut $crate::problem::Problems,
            ) -> Option<$name> {
                match table.word(key, problems)? {
                    $($word => Some($name::$variant),)*
                    _ => None,
                }
            }

            fn written(&self) -> String {
                format!("\"{}\"", self.name())
            }
        }
    };
}

/// Makes a structure of the plan. Each of its fields is a key: type, default, and, if the type does
/// not imply them, its permitted values and protocols. Fields after `also` are no keys.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty = $default:expr $(, $kind:expr)? $(=> $protocols:expr)?;
            )*
        }
        $(also {
            $($(#[doc = $also_doc:literal])* $also:ident: $also_type:ty = $also_default:expr;)*
        })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])* pub $key: $type,)*
            $($($(#[doc = $also_doc])* pub $also: $also_type,)*)?
        }

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $($key: $default,)*
                    $($($also: $also_default,)*)?
                }
            }
        }

        impl $name {
            /// Keys of the file.
            pub(crate) const KEYS: &[$crate::setting::Key] = &[$($crate::setting::Key {
                name: stringify!($key),
                kind: $crate::setting::first!(
                    $($kind,)? <$type as $crate::setting::Setting>::KIND
                ),
                absent: $crate::setting::Absent::Default(|| {
                    let default: $type = $default;
                    $crate::setting::Setting::written(&default)
                }),
                doc: &[$($doc),*],
                protocols: $crate::setting::first!($($protocols,)? &[]),
            },)*];
        }

        impl $crate::setting::Settings for $name {
            fn read(
                &mut self,
                table: &$crate::reader::Table<'_>,
                problems: &mut $crate::problem::Problems,
            ) {
                $(
                    let key = stringify!($key);
                    let value = $crate::setting::Setting::read(table, key, problems);
                    if let Some(value) = value {
                        self.$key = value;
                    }
                )*
            }
        }
    };
}

/// Makes a list of keys: name, default, permitted values, and protocols if not all.
macro_rules! keys {
    ($(
        $(#[doc = $doc:literal])*
        $name:literal $(= $default:tt)?, $kind:expr $(=> $protocols:expr)?;
    )*) => {
        &[$($crate::setting::Key {
            name: $name,
            kind: $kind,
            absent: $crate::setting::absent!($($default)?),
            doc: &[$($doc),*],
            protocols: $crate::setting::first!($($protocols,)? &[]),
        },)*]
    };
}

macro_rules! absent {
    () => {
        $crate::setting::Absent::Described
    };
    (required) => {
        $crate::setting::Absent::Required
    };
    ($default:tt) => {
        $crate::setting::Absent::Default(|| String::from(stringify!($default)))
    };
}

macro_rules! first {
    ($first:expr $(, $rest:expr)?) => {
        $first
    };
}

pub(crate) use {absent, first, keys, settings, words};
