package offline_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/catalog"
	. "sallyport.dev/sallyport/webhooks/offline"
)

// withWindows is the policy windows, and nothing else that denies.
func withWindows(t *testing.T, changes ...func(*v1alpha1.RegoPolicySpec)) (*catalog.Set, error) {
	t.Helper()
	needed := []string{"lib-operations", "lib-override", "lib-schedule", "lib-shell", "lib-tenants", "windows"}
	all := slices.DeleteFunc(shipped.Policies(t), func(p v1alpha1.RegoPolicy) bool { return !slices.Contains(needed, p.Name) })
	for _, change := range changes {
		change(&all[len(all)-1].Spec)
	}
	return catalog.Compile(all)
}

// A slip in the parameters is told by the path of the field.
func TestParametersOfWindows(t *testing.T) {
	const hours = `"hours": {"from": "22:00", "to": "06:00"}`
	row := func(text string) string { return `[{"name": "a", "timeZone": "UTC", ` + text + `}]` }
	dates := func(from, to string) string { return row(`"dates": {"from": "` + from + `", "to": "` + to + `"}`) }
	for name, tc := range map[string]struct{ rows, want string }{
		"hours":                         {row(hours), ""},
		"hours over days":               {row(`"days": ["Sat"], "hours": {"from": "06:00", "to": "06:00", "toDay": "Mon"}`), ""},
		"one date":                      {dates("2028-02-29", "2028-02-29"), ""},
		"to a time of the first date":   {dates("2026-12-20", "2026-12-20T06:00"), ""},
		"from a time of the last date":  {dates("2026-12-20T18:00", "2026-12-20"), ""},
		"no schedule":                   {row(`"actions": ["Stop"]`), "[0]: Invalid value: must have days, hours or dates"},
		"no zone":                       {`[{"name": "a", ` + hours + `}]`, "[0].timeZone: Required value"},
		"a zone that does not exist":    {`[{"name": "a", "timeZone": "Europe/Wien", ` + hours + `}]`, `[0].timeZone: Invalid value: "string": unknown time zone Europe/Wien`},
		"the zone of a machine":         {`[{"name": "a", "timeZone": "Local", ` + hours + `}]`, `[0].timeZone: Invalid value: "Local": must be UTC, or a name`},
		"a distance from UTC":           {`[{"name": "a", "timeZone": "+01:00", ` + hours + `}]`, `[0].timeZone: Invalid value: "+01:00": must be UTC, or a name`},
		"no name":                       {`[{"timeZone": "UTC", ` + hours + `}]`, "[0].name: Required value"},
		"two of one name":               {`[{"name": "a", "timeZone": "UTC", ` + hours + `}, {"name": "a", "timeZone": "UTC", ` + hours + `}]`, "[1]: Duplicate value"},
		"a day in full":                 {row(`"days": ["Monday"]`), `[0].days[0]: Unsupported value: "Monday": supported values: "Mon", "Tue"`},
		"a day twice":                   {row(`"days": ["Mon", "Mon"]`), `[0].days[1]: Duplicate value`},
		"no days":                       {row(`"days": []`), "[0].days: Invalid value"},
		"no hours":                      {row(`"hours": {"from": "22:00", "to": "22:00"}`), "[0].hours: Invalid value: from and to must be different times"},
		"no end of hours":               {row(`"hours": {"from": "22:00"}`), "[0].hours.to: Required value"},
		"no time of day":                {row(`"hours": {"from": "22:00", "to": "24:00"}`), "[0].hours.to: Invalid value"},
		"a number as time of day":       {row(`"hours": {"from": 1320, "to": "06:00"}`), "[0].hours.from: Invalid value"},
		"a last day of every day":       {row(`"hours": {"from": "22:00", "to": "06:00", "toDay": "Mon"}`), "[0]: Invalid value: hours.toDay needs days"},
		"another last day":              {row(`"days": ["Sat"], "hours": {"from": "22:00", "to": "06:00", "toDay": "mon"}`), `[0].hours.toDay: Unsupported value: "mon"`},
		"dates that end before":         {dates("2027-01-06", "2026-12-20"), "[0].dates: Invalid value: to must not be before from"},
		"times that end before":         {dates("2026-12-20T18:00", "2026-12-20T06:00"), "[0].dates: Invalid value: to must not be before from"},
		"a time to itself":              {dates("2026-12-20T18:00", "2026-12-20T18:00"), "[0].dates: Invalid value: to must not be before from"},
		"a date that does not exist":    {dates("2026-02-30", "2026-03-01"), `[0].dates.from: Invalid value: "string": `},
		"a date in a far future":        {dates("2026-02-20", "2300-03-01"), `[0].dates.to: Invalid value: "2300-03-01": must be a date before 2200`},
		"a date in another order":       {dates("20.12.2026", "2027-01-06"), "[0].dates.from: Invalid value"},
		"a time with its zone":          {dates("2026-12-20T18:00Z", "2027-01-06"), "[0].dates.from: Too long"},
		"no end of dates":               {row(`"dates": {"from": "2026-12-20"}`), "[0].dates.to: Required value"},
		"another action":                {row(`"actions": ["Reboot"], ` + hours), `[0].actions[0]: Unsupported value: "Reboot"`},
		"no action":                     {row(`"actions": [], ` + hours), "[0].actions: Invalid value"},
		"the kind of operations":        {row(`"kinds": ["virtualmachineoperations.sallyport.dev"], ` + hours), "[0].kinds[0]: Invalid value: \"virtualmachineoperations.sallyport.dev\": for operations on machines: virtualmachines.sallyport.dev"},
		"another operator":              {row(`"selector": {"matchExpressions": [{"key": "a", "operator": "Equals"}]}, ` + hours), "[0].selector.matchExpressions[0].operator: Unsupported value"},
		"an expression without values":  {row(`"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, ` + hours), "[0].selector.matchExpressions[0]: Invalid value: In and NotIn must have values"},
		"an expression with too many":   {row(`"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}, ` + hours), "[0].selector.matchExpressions[0]: Invalid value: In and NotIn must have values"},
		"a label without matchLabels":   {row(`"selector": {"stage": "production"}, ` + hours), "[0].selector.stage: unknown field"},
		"another member":                {row(`"namespace": "a", ` + hours), "[0].namespace: unknown field"},
		"a list of users, not of names": {row(`"exempt": {"users": "alice"}, ` + hours), "[0].exempt.users: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := withWindows(t, parameter(t, "windows", tc.rows), parameter(t, "freezes", tc.rows))
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, list := range []string{"windows", "freezes"} {
				if want := "spec.parameters." + list + tc.want; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}

// The conditions exclude only requests that the policy does not deny, for kinds of any shape.
func TestWhatWindowsIsAskedAbout(t *testing.T) {
	always := parameter(t, "freezes", `[{"name": "always", "timeZone": "UTC", "dates": {"from": "2020-01-01", "to": "2199-12-31"}}]`)
	more := func(spec *v1alpha1.RegoPolicySpec) {
		spec.Match.Resources = append(spec.Match.Resources, v1alpha1.PolicyResources{
			APIGroups: []string{"", "apps"}, APIVersions: []string{"*"}, Resources: []string{"configmaps", "deployments"},
			Operations: []v1alpha1.MatchOperation{"UPDATE", "DELETE"},
		}, v1alpha1.PolicyResources{
			APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments/scale"},
			Operations: []v1alpha1.MatchOperation{"UPDATE"},
		})
	}
	set, err := withWindows(t, always, more)
	if err != nil {
		t.Fatal(err)
	}
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default, labels: {a: b}}\ndata: {a: b}\n"
	const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\nspec: {replicas: 3}\n"
	now := func() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }
	plain := func(*Request) {}
	for name, tc := range map[string]struct {
		file, old, new string
		how            func(*Request)
		verdict        Verdict
		text           string
	}{
		"data":                {settings, "{a: b}\n", "{a: c}\n", plain, Denied, "ConfigMap settings: changes are not allowed"},
		"data that goes":      {settings, "data: {a: b}\n", "", plain, Denied, "ConfigMap settings: changes are not allowed"},
		"more data":           {settings, "\ndata:", "\nbinaryData: {c: ''}\ndata:", plain, Denied, "ConfigMap settings: changes are not allowed"},
		"a label":             {settings, "labels: {a: b}", "labels: {a: c}", plain, Denied, "ConfigMap settings: changes are not allowed"},
		"labels that go":      {settings, ", labels: {a: b}", "", plain, Denied, "ConfigMap settings: changes are not allowed"},
		"an annotation":       {settings, "labels:", "annotations: {a: b}, labels:", plain, Admitted, "its matchCondition match-0.sallyport.dev/operates-deletes-changes-or-scales-down excludes this request"},
		"a deletion":          {settings, "", "", deletion, Denied, "ConfigMap settings: deletion is not allowed"},
		"fewer replicas":      {web, "replicas: 3", "replicas: 2", plain, Denied, "Deployment web: cannot scale from 3 to 2"},
		"more replicas":       {web, "replicas: 3", "replicas: 4", plain, Denied, "Deployment web: changes are not allowed"},
		"scaled down":         {web, "replicas: 3", "replicas: 0", scaled, Denied, "Deployment web: cannot scale from 3 to 0"},
		"scaled up":           {web, "replicas: 3", "replicas: 4", scaled, Admitted, "its matchCondition match-0.sallyport.dev/operates-deletes-changes-or-scales-down excludes this request"},
		"a status of its own": {web, "spec:", "status: {replicas: 1}\nspec:", plain, Admitted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := bundled.Reviewer(Options{Policies: set, State: documents(t, settings+"---\n"+web), Namespace: "default", Now: now})
			if err != nil {
				t.Fatal(err)
			}
			is(t, ask(t, r, strings.Replace(tc.file, tc.old, tc.new, 1), tc.how), tc.verdict, tc.text)
		})
	}
}
