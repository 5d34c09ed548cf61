package vcsim

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// File is a file of an OVA.
type File struct {
	Name, Content string
}

// Archive gives the files as an OVA.
func Archive(entries ...File) []byte {
	var text bytes.Buffer
	files := tar.NewWriter(&text)
	var err error
	for _, e := range entries {
		err = errors.Join(err, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.Name, Mode: 0o644, Size: int64(len(e.Content))}))
		_, wrote := files.Write([]byte(e.Content))
		err = errors.Join(err, wrote)
	}
	if err = errors.Join(err, files.Close()); err != nil {
		panic(err)
	}
	return text.Bytes()
}

// Disk is what the disk of an OVA is.
var Disk = strings.Repeat("streamOptimized ", 4096)

// Descriptor is an OVF with these networks, and a disk of 64 MiB in disk.vmdk.
func Descriptor(networks ...string) string {
	var named strings.Builder
	for _, name := range networks {
		fmt.Fprintf(&named, `<Network ovf:name="%s"><Description/></Network>`, name)
	}
	return fmt.Sprintf(`<?xml version="1.0"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
 xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
 xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
 <References><File ovf:href="disk.vmdk" ovf:id="file1" ovf:size="%d"/></References>
 <DiskSection><Info/><Disk ovf:capacity="64" ovf:capacityAllocationUnits="byte * 2^20" ovf:diskId="vmdisk1" ovf:fileRef="file1"/></DiskSection>
 <NetworkSection><Info/>%s</NetworkSection>
 <VirtualSystem ovf:id="image"><Info/>
  <VirtualHardwareSection><Info/>
   <System><vssd:ElementName>x</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-13</vssd:VirtualSystemType></System>
   <Item><rasd:ElementName>cpu</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
   <Item><rasd:ElementName>scsi</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>pvscsi</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
   <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>disk</rasd:ElementName><rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource><rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
   <Item><rasd:Connection>%s</rasd:Connection><rasd:ElementName>nic</rasd:ElementName><rasd:InstanceID>5</rasd:InstanceID><rasd:ResourceSubType>vmxnet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
  </VirtualHardwareSection>
 </VirtualSystem>
</Envelope>`, len(Disk), named.String(), strings.Join(networks, ""))
}

// OVA is one that can be imported.
func OVA() []byte {
	return Archive(File{"image.ovf", Descriptor("nat")}, File{"image.mf", "SHA256"}, File{"disk.vmdk", Disk})
}

// OVAWithTwoDisks is one whose machine has two disks, each a file of its own.
func OVAWithTwoDisks() []byte {
	const file, disk, item = `</References>`, `</DiskSection>`, `<Item><rasd:Connection>`
	descriptor := strings.NewReplacer(
		file, fmt.Sprintf(`<File ovf:href="data.vmdk" ovf:id="file2" ovf:size="%d"/>`, len(Disk))+file,
		disk, `<Disk ovf:capacity="32" ovf:capacityAllocationUnits="byte * 2^20" ovf:diskId="vmdisk2" ovf:fileRef="file2"/>`+disk,
		item, `<Item><rasd:AddressOnParent>1</rasd:AddressOnParent><rasd:ElementName>data</rasd:ElementName><rasd:HostResource>ovf:/disk/vmdisk2</rasd:HostResource>`+
			`<rasd:InstanceID>6</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>`+item,
	).Replace(Descriptor("nat"))
	return Archive(File{"image.ovf", descriptor}, File{"disk.vmdk", Disk}, File{"data.vmdk", Disk})
}
