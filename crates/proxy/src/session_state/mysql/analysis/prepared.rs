//! What a text means that was prepared long before it is run.

use evenkeel_policy::pins::Pin;

use super::{EffectKind, SessionObject, TextAnalysis, Value};
use crate::session_state::mysql::values;

impl TextAnalysis {
    /// The same of a statement that COM_STMT_PREPARE has prepared: it names tables of the schema
    /// that was the session's then, and its strings are what they were in this `sql_mode`,
    /// `character_set_client` and `collation_connection`.
    #[must_use]
    pub fn of_prepared(mut self, mode: &[u8], client: &[u8], collation: &[u8]) -> TextAnalysis {
        let is_drop = |does: &EffectKind| {
            matches!(does, EffectKind::Unmake(SessionObject::TemporaryTable, _))
        };
        self.effects.retain(|one| !is_drop(&one.does));
        for effect in &mut self.effects {
            if let EffectKind::Make(SessionObject::TemporaryTable, _) = effect.does {
                effect.does = EffectKind::Unknown(SessionObject::TemporaryTable);
            }
            if let EffectKind::SetUser { value, .. } = &mut effect.does
                && let Value::String(string) = value
            {
                match values::literal_of_variable(string, mode, client, collation) {
                    Some(literal) => *value = Value::Same(literal.into()),
                    None => effect.does = EffectKind::Pin(Pin::Variables),
                }
            }
        }
        self
    }
}
