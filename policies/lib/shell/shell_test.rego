package sallyport.lib.shell_test

import data.sallyport.lib.shell

test_word[text] if {
	some text, word in {
		"web-1": "web-1", "system:node:n_1.example": "system:node:n_1.example", "alice@example.org": "alice@example.org",
		"CN=Alice,O=Example Inc": "'CN=Alice,O=Example Inc'", "a b": "'a b'", "a;b": "'a;b'", "$(reboot)": "'$(reboot)'",
		"a'$(reboot)'": `'a'"'"'$(reboot)'"'"''`, "`b`": "'`b`'", "a\nb": "ab", "a\u001b[2K\u202eb": "'a[2Kb'", "é": "'é'",
		"": "NAME", "-n": "NAME", "\n--all": "NAME",
	}
	shell.word(text) == word
}
