# METADATA
# title: Operations on virtual machines
# description: What an operation is called, which shape it must have before a policy can judge it, and when a move is final.
package sallyport.lib.operations

# METADATA
# description: Every type of operation.
types := {"Start", "Stop", "Restart", "Migrate", "Evict"}

# METADATA
# description: Every operation as tables in parameters spell it, the gentle ones first. There is no forced Start.
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
# description: How a message calls each operation.
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
# description: An operation's row or column in a table, "Stop" or "Stop force".
key(spec) := spec.type if not spec.force == true

key(spec) := $"{spec.type} force" if spec.force == true

# METADATA
# description: How a message calls the operation, "Stop" or "forced Stop".
name(spec) := names[key(spec)]

# METADATA
# description: Whether the spec of an operation can be judged; a policy's valid_input asks this of every one it reads.
known(spec) if {
	text(spec.virtualMachineName)
	spec.type in types
	is_boolean(object.get(spec, "force", false))
	names[key(spec)]
}

# METADATA
# description: >-
#   Whether a table in parameters can be read: each row a list of operations. One misspelled entry makes the whole
#   table unknown, because an entry that matches nothing would change verdicts in silence.
known_table(table) if {
	is_object(table)
	{type_name(row) | some row in table} == {"array"}
	{entry | some row in table; some entry in row} - object.keys(names) == set()
}

# METADATA
# description: >-
#   Whether a move by hibernation has come so far that only the deletion of the VirtualMachine takes its place. The argument is
#   status.migration, or null.
travels(migration) if migration.step in {"Release", "Restore"}

# METADATA
# description: Whether status.migration, or null, can be judged.
known_migration(null)

known_migration(migration) if {
	migration.step in {"Hibernate", "Wake", "Release", "Restore", "Discard"}
	to := object.get(migration, "to", {})
	is_object(to)
	text(object.get(to, "nodeName", "any"))
}

# METADATA
# description: A string that says something; presence alone would let "", null and 0 pass.
text(value) if {
	is_string(value)
	value != ""
}
