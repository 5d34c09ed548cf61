package chart

import (
	"os"
	"strings"

	"sallyport.dev/sallyport/test/support/alerts"
	"sallyport.dev/sallyport/test/support/env/install"
)

// commandsOfAlerts: what alerts and their page tell their reader to run, kubectl runs.
func (s *replicated) commandsOfAlerts() {
	page, err := os.ReadFile("../../../docs/alerts.md")
	s.Must(err)
	commands := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if command, is := strings.CutPrefix(line, "$ kubectl "); is {
			commands[strings.TrimSpace(command)] = true
		}
	}
	onPage := len(commands)
	for _, r := range alerts.Rules(s.T.T) {
		if _, command, is := strings.Cut(r.Annotations["description"], "kubectl "); is {
			commands[strings.ReplaceAll(command, "{{ $labels.policy }}", "operations-supersede")] = true
		}
	}
	if onPage < 20 || len(commands) == onPage {
		s.Errorf("only %d commands, %d of them on the page", len(commands), onPage)
	}
	for command := range commands {
		command, _, _ = strings.Cut(command, " | ")
		// Not here: commands about objects that do not exist, and that for audits, of which there is none yet.
		if strings.Contains(command, "{{") || strings.Contains(command, "NAME") || command == "sallyport audit" {
			continue
		}
		if args, is := strings.CutPrefix(command, "sallyport "); is {
			s.plugin(strings.Fields(args)...)
		} else {
			s.kubectl(strings.ReplaceAll(command, "logs -n "+install.Namespace, "logs -n default")) // no kubelet has the logs of these Pods
		}
	}
}
