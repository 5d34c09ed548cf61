package plugin

import (
	"github.com/spf13/pflag"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// nodeSelector is the flag for labels that a node must have.
type nodeSelector map[string]string

func (s *nodeSelector) addFlag(f *pflag.FlagSet, usage string) {
	f.StringToStringVar((*map[string]string)(s), "node-selector", nil, usage)
	f.Lookup("node-selector").DefValue = "" // hide the default in help
}

// labels returns the selector as in specs; nil if it is empty.
func (s nodeSelector) labels() (labels map[string]v1alpha1.LabelValue) {
	for key, value := range s {
		if labels == nil {
			labels = map[string]v1alpha1.LabelValue{}
		}
		labels[key] = v1alpha1.LabelValue(value)
	}
	return labels
}
