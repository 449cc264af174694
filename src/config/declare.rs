//! The declaration of settings: [`Config`](super::Config) and the rows of the registry are made of
//! it.

/// The type of the field of a setting with a default of its own.
macro_rules! field_type {
    ($kind:ty, $default:expr) => {
        <$kind as FieldKind>::Field
    };
}

/// Declares the settings: `parts` are the structs of subsystems, the rest are the rows. A row names
/// a field of a part, or declares a field with its default.
macro_rules! settings {
    (
        parts { $($(#[doc = $about:literal])* $part:ident: $type:ty,)+ }
        $(
            $(#[doc = $meaning:literal])+
            $field:ident$(.$inner:ident)*: $kind:ty $(= $default:expr)?, $key:literal
                $(.$mark:ident($($argument:expr),*))*;
        )+
    ) => {
        /// The settings in force, by name: those of each subsystem as its own struct.
        #[derive(Clone)]
        pub struct Config {
            $($(#[doc = $about])* pub $part: $type,)+
            $($(pub $field: field_type!($kind, $default),)?)+
        }

        impl fmt::Debug for Config {
            /// Shows nothing: values may be secret.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Config")
            }
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $($part: <$type>::default(),)+
                    $($($field: $default,)?)+
                }
            }
        }

        impl Config {
            pub(super) fn rows() -> Vec<Setting> {
                let defaults = Self::default();
                vec![$({
                    let default = <$kind>::from_field(&defaults.$field$(.$inner)*);
                    Setting::new($key, &[$($meaning),+], &default)
                        $(.$mark($($argument),*))*
                }),+]
            }

            /// Assigns the value of a setting.
            ///
            /// # Errors
            /// The setting does not accept the value.
            pub fn assign(&mut self, key: &str, value: Value) -> serde_json::Result<()> {
                match key {
                    $($key => {
                        let value: $kind = serde_json::from_value(value)?;
                        self.$field$(.$inner)* = value.into_field();
                    })+
                    _ => {}
                }
                Ok(())
            }

            /// Returns the value of a setting as the JSON of a file.
            pub fn value(&self, key: &str) -> Value {
                match key {
                    $($key => json!(<$kind>::from_field(&self.$field$(.$inner)*)),)+
                    _ => Value::Null,
                }
            }
        }
    };
}

pub(super) use {field_type, settings};
