//! Accessors that heads of requests and responses have in common.

/// Adds the accessors to a head, which has a member for each.
macro_rules! accessors {
    ($head:ident) => {
        impl $head {
            /// Returns the bytes of the head, with the empty line at its end, and one that came
            /// before a request.
            #[must_use]
            pub fn length(&self) -> usize {
                self.length as usize
            }

            /// Returns the version.
            #[must_use]
            pub fn version(&self) -> Version {
                self.version
            }

            /// Returns how the end of the body is found. Only a response may last until the
            /// connection closes.
            #[must_use]
            pub fn framing(&self) -> Framing {
                self.framing
            }

            /// Returns the number of fields.
            #[must_use]
            pub fn field_count(&self) -> usize {
                self.fields.len()
            }

            /// Returns the fields in their order, hop-by-hop fields included.
            pub fn fields<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
                self.fields.iter(bytes)
            }

            /// Returns whether there is a field of a known name.
            #[must_use]
            pub fn has(&self, known: KnownName) -> bool {
                self.fields.has(known)
            }

            /// Returns the value of the first field of a known name.
            #[must_use]
            pub fn get<'a>(&'a self, bytes: &'a [u8], known: KnownName) -> Option<&'a [u8]> {
                self.fields.all(bytes, known).next()
            }

            /// Returns the values of all fields of a known name, in their order.
            pub fn get_all<'a>(
                &'a self,
                bytes: &'a [u8],
                known: KnownName,
            ) -> impl Iterator<Item = &'a [u8]> {
                self.fields.all(bytes, known)
            }

            pub(in crate::http) fn parts(&self) -> &Fields {
                &self.fields
            }
        }
    };
}

pub(super) use accessors;
