package sallyport.lib.tenants_test

import data.sallyport.lib.tenants

_tenant(more) := object.union({"name": "a", "namespaces": {"names": ["team-a"]}}, more)

_selecting(selector) := {"name": "a", "namespaces": {"selector": selector}}

_term(key, operator, values) := {"key": key, "operator": operator, "values": values}

_bare(key, operator) := {"key": key, "operator": operator}

# A selector, and whether it matches a namespace with the labels team=a, tier=.
_selectors := {
	"an empty one": {"selector": {}, "chosen": true},
	"a label": {"selector": {"matchLabels": {"team": "a"}}, "chosen": true},
	"an empty value": {"selector": {"matchLabels": {"tier": ""}}, "chosen": true},
	"another value": {"selector": {"matchLabels": {"team": "b"}}, "chosen": false},
	"another label": {"selector": {"matchLabels": {"teams": "a"}}, "chosen": false},
	"one label of two": {"selector": {"matchLabels": {"team": "a", "tier": "gold"}}, "chosen": false},
	"in": {"selector": {"matchExpressions": [_term("team", "In", ["b", "a"])]}, "chosen": true},
	"not in, but asked to be": {"selector": {"matchExpressions": [_term("team", "In", ["b"])]}, "chosen": false},
	"in, without the label": {"selector": {"matchExpressions": [_term("x", "In", ["a"])]}, "chosen": false},
	"not in": {"selector": {"matchExpressions": [_term("team", "NotIn", ["b"])]}, "chosen": true},
	"in, but asked not to be": {"selector": {"matchExpressions": [_term("team", "NotIn", ["a"])]}, "chosen": false},
	"not in, without the label": {"selector": {"matchExpressions": [_term("x", "NotIn", ["a"])]}, "chosen": true},
	"exists": {"selector": {"matchExpressions": [_bare("tier", "Exists")]}, "chosen": true},
	"does not exist, but should": {"selector": {"matchExpressions": [_bare("x", "Exists")]}, "chosen": false},
	"does not exist": {"selector": {"matchExpressions": [_bare("x", "DoesNotExist")]}, "chosen": true},
	"exists, but should not": {"selector": {"matchExpressions": [_bare("tier", "DoesNotExist")]}, "chosen": false},
	"one term of two": {"selector": {"matchExpressions": [_bare("tier", "Exists"), _bare("x", "Exists")]}, "chosen": false},
	"labels and terms": {
		"selector": {"matchLabels": {"team": "a"}, "matchExpressions": [_bare("x", "Exists")]},
		"chosen": false,
	},
}

test_selectors[note] if {
	some note, tc in _selectors
	tenant := _selecting(tc.selector)
	chosen := [entry | some entry in [tenant]; tc.chosen]
	tenants.entries([tenant], "team-a", {"team": "a", "tier": ""}) == chosen
	tenants.entries([tenant], "team-a", null) == []
	tenants.known([tenant])
}

test_by_name if {
	all := [_tenant({}), {"name": "b", "namespaces": {"names": ["team-b", "team-c"]}}, _selecting({})]
	tenants.entries(all, "team-c", null) == [all[1]]
	tenants.entries(all, "team-c", {}) == [all[1], all[2]]
	tenants.entries(all, "team-d", null) == []
}

# A path, a place, and whether the path is equal to the place ("is"), below it, or neither ("no").
_relations := [
	["/dc/vm/a", "/dc/vm/a", "is"],
	["/dc/vm/a/", "/dc/vm/a", "is"],
	["//dc//vm/a", "/dc/vm/a", "is"],
	["/dc/vm/a%2Fb%5C", "/dc/vm/a%2fb%5c", "is"],
	["/dc/vm/a/b/c", "/dc/vm/a", "below"],
	["/dc/vm/ab", "/dc/vm/a", "no"],
	["/dc/vm/A", "/dc/vm/a", "no"],
	["/dc/vm", "/dc/vm/a", "no"],
	["/dc/vm/a%2fb", "/dc/vm/a", "no"],
	["/x/dc/vm/a", "/dc/vm/a", "no"],
]

_relation(path, place) := "below" if tenants.below(path, place)

_relation(path, place) := "is" if {
	tenants.within(path, place)
	not tenants.below(path, place)
}

_relation(path, place) := "no" if not tenants.within(path, place)

test_relations[note] if {
	some note in _relations
	_relation(note[0], note[1]) == note[2]
}

test_odd[path] if {
	some path, odd in {
		"/a/..": {".."}, "/./a": {"."}, "/a%": {"a%"}, "/a%2": {"a%2"}, "/a%5d/%2e": {"a%5d", "%2e"},
		"/a%2f%2F%5c%5C%25/.../.a": set(),
	}
	tenants.odd(path) == odd
}

_clone := {
	"folder": "/dc/vm/a", "resourcePool": "/dc/host/c/Resources/a", "datastore": "/dc/datastore/fast",
	"template": {"inventoryPath": "/dc/vm/templates/t"}, "networks": ["/dc/network/a", "/dc/network/b"],
}

test_places if {
	tenants.places(_clone) == [
		{"field": "folder", "path": "/dc/vm/a", "allowed": "folders"},
		{"field": "resourcePool", "path": "/dc/host/c/Resources/a", "allowed": "resourcePools"},
		{"field": "datastore", "path": "/dc/datastore/fast", "allowed": "datastores"},
		{"field": "template.inventoryPath", "path": "/dc/vm/templates/t", "allowed": "templates"},
		{"field": "networks[0]", "path": "/dc/network/a", "allowed": "networks"},
		{"field": "networks[1]", "path": "/dc/network/b", "allowed": "networks"},
	]
}

test_places_of_a_reference if {
	ref := {"templateRef": {"name": "ubuntu"}}
	without := [place | some place in tenants.places(_clone); place.allowed != "templates"]
	tenants.places(object.union(object.remove(_clone, ["template"]), {"template": ref})) == without
	some place in tenants.places(object.union(_clone, {"template": ref}))
	place == {"field": "template.templateRef", "path": "/dc/vm/templates/t", "allowed": "templates"}
	every wrong in [{}, {"name": ""}] {
		not tenants.known_clone(object.union(_clone, {"template": {"templateRef": wrong}}))
	}
}

_anywhere := object.union(object.remove(_clone, ["datastore"]), {"storagePolicy": "gold"})

# A machine with a storage policy instead of a datastore needs an entry with datastores.
test_places_of_a_storage_policy if {
	some place in tenants.places(_anywhere)
	place.field == "datastore"
	tenants.allows(_tenant({"datastores": ["/dc/datastore/fast"]}), place)
	not tenants.allows(_tenant({"datastores": []}), place)
	not tenants.allows(_tenant({"folders": ["/dc/datastore"]}), place)
	tenants.odd(place.path) == set()
	named := {"field": "storagePolicy", "name": "gold", "allowed": "storagePolicies"}
	{place | some place in tenants.places(object.union(_clone, {"storagePolicy": "gold"}))} == {place | some place in tenants.places(_clone)} | {named}
	tenants.allows(_tenant({"storagePolicies": ["gold"]}), named)
	not tenants.allows(_tenant({"storagePolicies": ["Gold"], "datastores": ["/"]}), named)
}

test_made_at if {
	[place.field | some place in tenants.made_at({"clone": _clone})] == [
		"clone.folder", "clone.resourcePool", "clone.datastore", "clone.template.inventoryPath", "clone.networks[0]",
		"clone.networks[1]",
	]
	tenants.made_at({"datastore": "/dc/datastore/fast"}) == [{
		"field": "datastore", "path": "/dc/datastore/fast",
		"allowed": "datastores",
	}]
}

# The second pool is in the cluster, and an entry may contain the path of the cluster.
test_allows if {
	place := {"field": "resourcePool", "path": "/dc/host/c/Resources/a", "allowed": "resourcePools"}
	tenants.allows(_tenant({"resourcePools": ["/dc/host/b", "/dc/host/c/Resources/a"]}), place)
	tenants.allows(_tenant({"resourcePools": ["/dc/host/c"]}), place)
	tenants.allows(_tenant({"resourcePools": ["/dc/host/c"]}), object.union(place, {"path": "/dc/host/c"}))
	not tenants.allows(_tenant({"resourcePools": ["/dc/host/c"]}), object.union(place, {"path": "/dc/host/c2"}))
	not tenants.allows(_tenant({"folders": ["/dc/host/c"]}), place)
}

test_allows_by_name if {
	place := {"field": "storagePolicy", "name": "/golden", "allowed": "storagePolicies"}
	tenants.allows(_tenant({"storagePolicies": ["silver", "/golden"]}), place)
	not tenants.allows(_tenant({"storagePolicies": ["golden", "/", "/Golden"]}), place)
	not tenants.allows(_tenant({}), place)
}

_lists := ["folders", "resourcePools", "datastores", "networks", "templates"]

_unknown := object.union_n([
	{$"entry without {field}": object.remove(_tenant({}), [field]) | some field in ["name", "namespaces"]},
	{"empty name": _tenant({"name": ""})},
	{$"one of {list} {value}": _tenant({list: [value]}) |
		some list in _lists
		some value in ["", "Bogus", "/", "//", "/dc/", "/dc//vm", "dc"]
	},
	{"empty storage policy": _tenant({"storagePolicies": ["a", ""]})},
	{$"tag {i}": _tenant({"tags": [tag]}) |
		some i, tag in [
			{}, {"category": "a"}, {"name": "b"}, {"category": "", "name": "b"}, {"category": "a", "name": ""},
			{"category": "a", "name": "b", "other": "c"},
		]
	},
	{"empty namespace": {"name": "a", "namespaces": {"names": [""]}}},
	{$"term's {field} {value}": _selecting({"matchExpressions": [object.union(_term("a", "In", ["b"]), {field: value})]}) |
		some [field, value] in [["key", ""], ["operator", ""], ["operator", "Bogus"], ["values", []]]
	},
	{$"term without {field}": _selecting({"matchExpressions": [object.remove(_term("a", "In", ["b"]), [field])]}) |
		some field in ["key", "operator", "values"]
	},
	{"existing term's key": _selecting({"matchExpressions": [_bare("", "Exists")]})},
])

test_not_known[note] if {
	some note, tenant in _unknown
	not tenants.known([_tenant({}), tenant])
}

test_known if {
	tenants.known([])
	tenants.known([_tenant({list: ["/dc", "/dc/a%2fb"] | some list in _lists})])
	tenants.known([_tenant({"storagePolicies": ["gold"], "tags": [{"category": "a", "name": "b"}]})])
}

_broken_clones := object.union_n([
	{$"{field} missing": object.remove(_clone, [field]) | some field, _ in _clone},
	{$"{field} {value}": object.union(_clone, {field: value}) |
		some field in ["folder", "resourcePool", "datastore"]
		some value in ["", "Bogus"]
	},
	{$"template {template}": object.union(object.remove(_clone, ["template"]), {"template": template}) |
		some template in [{}, {"inventoryPath": ""}, {"inventoryPath": "Bogus"}]
	},
	{$"empty storage policy, {beside}": object.union(clone, {"storagePolicy": ""}) |
		some beside, clone in {"a datastore": _clone, "no datastore": _anywhere}
	},
	{"empty datastore with a storage policy": object.union(_anywhere, {"datastore": ""})},
	{$"networks {networks}": object.union(_clone, {"networks": networks}) | some networks in [[], ["/dc/network/a", ""], ["/dc/network/a", "Bogus"]]},
])

test_not_known_clone[note] if {
	tenants.known_clone(_clone)
	tenants.known_clone(_anywhere)
	some note, clone in _broken_clones
	not tenants.known_clone(clone)
}

test_known_made if {
	tenants.known_made({"clone": _clone})
	not tenants.known_made({"clone": {}})
	tenants.known_made({"datastore": "/dc/datastore/fast"})
	not tenants.known_made({"datastore": "fast"})
	not tenants.known_made({})
}

test_members if {
	labels := {"a": {"team": "x"}, "b": {"team": "y"}, "c": {}}
	tenants.members({"namespaces": {"names": ["b", "elsewhere"]}}, labels) == {"b", "elsewhere"}
	tenants.members({"namespaces": {"selector": {"matchLabels": {"team": "x"}}}}, labels) == {"a"}
	tenants.members({"namespaces": {"names": ["c"], "selector": {"matchLabels": {"team": "x"}}}}, labels) == {"a", "c"}
	tenants.members({"namespaces": {}}, labels) == set()
	tenants.members({"namespaces": {"selector": {"matchExpressions": [_bare("x", "Exists")]}}}, {"d": null}) == set()
}
