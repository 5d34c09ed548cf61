# METADATA
# title: Operations on virtual machines
# description: The names of operations in messages, the checks of their fields, and the point from which a move cannot be superseded.
package sallyport.lib.operations

# METADATA
# description: Every type of operation.
types := {"Start", "Stop", "Restart", "Migrate", "Evict"}

# METADATA
# description: All operations as the tables in parameters spell them, each graceful one before its forced one. There is no forced Start.
keys := [
	"Start",
	"Stop",
	"Stop force",
	"Restart",
	"Restart force",
	"Migrate",
	"Migrate force",
	"Evict",
	"Evict force",
]

# METADATA
# description: The name of each operation that exists, such as "forced Stop" in "forced Stop web-1-stop-x is in progress".
names := {
	"Start": "Start",
	"Stop": "Stop",
	"Stop force": "forced Stop",
	"Restart": "Restart",
	"Restart force": "forced Restart",
	"Migrate": "Migrate",
	"Migrate force": "forced Migrate",
	"Evict": "Evict",
	"Evict force": "forced Evict",
}

# METADATA
# description: The command that asks for each operation, as users type it after kubectl sallyport.
commands := {
	"Start": "start",
	"Stop": "stop",
	"Stop force": "stop --force",
	"Restart": "restart",
	"Restart force": "restart --force",
	"Migrate": "migrate",
	"Migrate force": "migrate --force",
	"Evict": "evict",
	"Evict force": "evict --force",
}

# METADATA
# description: The row or column of an operation in a table, such as "Stop" or "Stop force".
key(spec) := spec.type if not spec.force == true

key(spec) := $"{spec.type} force" if spec.force == true

# METADATA
# description: The name of an operation that exists, such as "Stop" or "forced Stop".
name(spec) := names[key(spec)]

# METADATA
# description: The command that asks for an operation, such as "stop" or "stop --force".
command(spec) := commands[key(spec)]

# METADATA
# description: Whether the spec of an operation has the fields that policies read. valid_input checks this for each operation.
known(spec) if {
	spec.virtualMachineName != ""
	spec.type in types
	names[key(spec)]
}

# METADATA
# description: >-
#   Whether a table in parameters is valid: each row is a list of operations. One misspelled entry makes the whole table
#   invalid, because an entry that matches nothing would change verdicts silently.
known_table(table) if {
	is_object(table)
	{type_name(row) | some row in table} == {"array"}
	{entry | some row in table; some entry in row} - object.keys(names) == set()
}

# METADATA
# description: >-
#   Whether a move by hibernation has come so far that only the deletion of the VirtualMachine can supersede it. The argument
#   is status.migration, or null.
travels(migration) if migration.step in {"Release", "Restore"}

# METADATA
# description: Whether status.migration, or null, has a step that policies know.
known_migration(null)

known_migration(migration) if migration.step in {"Hibernate", "Wake", "Release", "Restore", "Discard"}
