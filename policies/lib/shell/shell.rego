# METADATA
# title: Values in commands
# description: >-
#   Policies put commands into their messages, and users paste them into a shell. A name in a command may have been chosen by another
#   user, and some kinds allow any character in a name.
package sallyport.lib.shell

# METADATA
# description: >-
#   The text as one word of a POSIX shell. Characters that a terminal does not print are left out. A text that the command would read as
#   a flag, or that is empty, becomes NAME.
word(text) := _quoted(_printable(text)) if not _flag(_printable(text))

word(text) := "NAME" if _flag(_printable(text))

_printable(text) := regex.replace(text, `[^\p{L}\p{M}\p{N}\p{P}\p{S} ]`, "")

_flag(text) if text == ""

_flag(text) if startswith(text, "-")

_quoted(text) := text if _safe(text)

_quoted(text) := $"'{replace(text, "'", `'"'"'`)}'" if not _safe(text)

_safe(text) if regex.match(`^[A-Za-z0-9_@%+=:,./-]+$`, text)
