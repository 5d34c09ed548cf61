package machine

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// ofGuest are the properties about the guest and about questions. They change only when their content does; counters
// such as guest.disk and guestHeartbeatStatus would cause endless change events.
var ofGuest = []string{
	"guest.hostName", "guest.ipAddress", "guest.net", "guest.toolsRunningStatus", "guest.toolsVersionStatus2", "runtime.question",
}

// hostnames matches valid host names; any other name that a guest reports is not shown.
var hostnames = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?$`)

// guest returns what the guest reports. Data that vCenter remembers of a machine that is off is not shown.
func (s *sighting) guest() runtime.Guest {
	guest := s.vm.Guest
	if guest == nil || s.power() != v1alpha1.PowerRunning {
		return runtime.Guest{}
	}
	said := runtime.Guest{Tools: tools(guest)}
	for _, address := range addresses(guest) {
		said.Add(address)
	}
	if hostnames.MatchString(guest.HostName) {
		said.Hostname = guest.HostName
	}
	return said
}

func tools(guest *types.GuestInfo) v1alpha1.ToolsState {
	switch types.VirtualMachineToolsRunningStatus(guest.ToolsRunningStatus) {
	case types.VirtualMachineToolsRunningStatusGuestToolsRunning:
		return v1alpha1.ToolsRunning
	case types.VirtualMachineToolsRunningStatusGuestToolsExecutingScripts:
		return v1alpha1.ToolsStarting
	case types.VirtualMachineToolsRunningStatusGuestToolsNotRunning:
		if guest.ToolsVersionStatus2 == string(types.VirtualMachineToolsVersionStatusGuestToolsNotInstalled) {
			return v1alpha1.ToolsNotInstalled
		}
		return v1alpha1.ToolsNotRunning
	}
	return ""
}

// addresses returns the guest's addresses in the documented order of the status: vCenter's own order may change.
func addresses(guest *types.GuestInfo) []string {
	type found struct {
		address netip.Addr
		rank    int
	}
	var all []found
	add := func(text string, rank int) {
		if address, is := runtime.AddressOf(text); is {
			all = append(all, found{address, rank})
		}
	}
	add(guest.IpAddress, 0)
	for _, adapter := range guest.Net {
		rank := 1
		if adapter.DeviceConfigId < 0 { // not an adapter of the machine but, for example, a bridge
			rank = 2
		}
		for _, address := range adapter.IpAddress {
			add(address, rank)
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(cmp.Compare(a.rank, b.rank), a.address.Compare(b.address)) })
	sorted := make([]string, len(all))
	for i, f := range all {
		sorted[i] = f.address.String()
	}
	return sorted
}

// question returns vCenter's pending question. Its text begins with a message ID, so the messages are shown first.
func (s *sighting) question() *v1alpha1.PendingQuestion {
	asked := s.vm.Runtime.Question
	if asked == nil {
		return nil
	}
	var texts []string
	for _, message := range asked.Message {
		texts = append(texts, message.Text)
	}
	shown := &v1alpha1.PendingQuestion{Text: short(cmp.Or(strings.Join(texts, " "), asked.Text), 2048)}
	for _, choice := range asked.Choice.ChoiceInfo[:min(16, len(asked.Choice.ChoiceInfo))] {
		label := choice.GetElementDescription()
		shown.Choices = append(shown.Choices, short(cmp.Or(label.Label, label.Summary, label.Key), 256))
	}
	return shown
}

// short truncates a text to the limit of the status.
func short(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}
