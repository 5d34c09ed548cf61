package grants

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// Release is the Helm release that Sallyport is installed by. Whoever does not know it leaves it empty.
type Release struct{ Name, Namespace string }

// Upgrade is the command that adds to a value of the chart, which is a map.
func (r Release) Upgrade(value string, add any) string {
	text, err := json.Marshal(add)
	if err != nil {
		panic(err) // maps of texts
	}
	return fmt.Sprintf("helm upgrade %s CHART --namespace %s --reuse-values --set-json '%s=%s'",
		cmp.Or(r.Name, "RELEASE"), cmp.Or(r.Namespace, "NAMESPACE"), value, text)
}
